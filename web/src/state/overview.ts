// What all sessions do: their list, and what the event feed says about each. One stream keeps everything current.
import { batch, computed, signal } from "@preact/signals";
import { type PendingRequest, type Scope, type SessionInfo, type Used, errorText, json, token } from "../api/client";
import { type AnyEvent, number, parseEvent, record, text } from "../api/events";
import { type StreamState, follow } from "../api/stream";

export interface Activity {
  turns: number;
  running: boolean;
  denied: number;
  outcome: string;
  endReason: string;
}

export type Status = "waiting" | "running" | "idle" | "ended" | "failed" | "damaged";

export interface SessionRow {
  info: SessionInfo;
  status: Status;
  activity: Activity;
  used: Used | undefined;
  waiting: number;
}

export const scopes = signal<Scope[] | null>(null);
export const sessions = signal<SessionInfo[]>([]);
export const pending = signal<PendingRequest[]>([]);
export const usage = signal<Map<string, Used>>(new Map());
export const activity = signal<Map<string, Activity>>(new Map());
export const loaded = signal(false);
export const problem = signal("");
export const feedState = signal<StreamState>("connecting");
export const pendingKnown = signal(false);

const FEED_KINDS = "turn,egress.denied,permission,question,session,error,llm.call";
const IDLE: Activity = { turns: 0, running: false, denied: 0, outcome: "", endReason: "" };
let stopFeed: () => void = () => {};
let timer: ReturnType<typeof setTimeout> | undefined;

export function can(scope: Scope): boolean {
  const held = scopes.value ?? [];
  return held.includes(scope) || held.includes("admin");
}

export const rows = computed<SessionRow[]>(() => {
  const open = new Map<string, number>();
  for (const request of pending.value) open.set(request.sessionId, (open.get(request.sessionId) ?? 0) + 1);
  return sessions.value.map((info) => {
    const done = activity.value.get(info.sessionId) ?? IDLE;
    const waiting = open.get(info.sessionId) ?? 0;
    return { info, activity: done, used: usage.value.get(info.sessionId), waiting, status: statusOf(info, done, waiting) };
  });
});

function statusOf(info: SessionInfo, done: Activity, waiting: number): Status {
  if (info.damaged) return "damaged";
  if (info.ended) return done.endReason === "error" ? "failed" : "ended";
  if (waiting > 0) return "waiting";
  return done.running ? "running" : "idle";
}

/** Reads everything and follows the feed; called again when the token changes. */
export async function start(): Promise<void> {
  stopFeed();
  clearTimeout(timer);
  batch(() => {
    loaded.value = false;
    problem.value = "";
    scopes.value = null;
  });
  try {
    scopes.value = (await json<{ scopes: Scope[] }>("/v1/whoami")).scopes;
    const cursor = await readFeed();
    await reload();
    loaded.value = true;
    const stream = follow({
      path: `/v1/events/sse?kind=${FEED_KINDS}`,
      after: cursor,
      onFrame: (frame) => {
        const event = parseEvent(frame.data);
        if (event) take([event]);
        soon();
      },
      onState: (state) => {
        if (state === "live" && feedState.value === "lost") soon();
        feedState.value = state;
      },
    });
    stopFeed = stream.stop;
  } catch (error) {
    problem.value = token.value === null && scopes.value === null ? "" : errorText(error);
    loaded.value = true;
    if (scopes.value === null && token.value !== null) timer = setTimeout(() => void start(), 3000);
  }
}

/** Reads the lists again. */
export async function reload(): Promise<void> {
  const [listed, waiting, used] = await Promise.all([
    json<{ sessions: SessionInfo[] }>("/v1/sessions"),
    json<{ pending: PendingRequest[] }>("/v1/pending"),
    json<{ rows: Used[] }>("/v1/usage?by=session"),
  ]);
  batch(() => {
    sessions.value = listed.sessions;
    pending.value = waiting.pending;
    pendingKnown.value = true;
    usage.value = new Map(used.rows.map((row) => [row.name, row]));
  });
}

function soon(): void {
  timer ??= setTimeout(() => {
    timer = undefined;
    reload().catch((error: unknown) => (problem.value = errorText(error)));
  }, 150);
}

async function readFeed(): Promise<string> {
  activity.value = new Map();
  let cursor = "";
  for (;;) {
    const query = new URLSearchParams({ kind: FEED_KINDS, limit: "5000", ...(cursor ? { offset: cursor } : {}) });
    const page = await json<{ events: AnyEvent[]; hasMore: boolean; nextOffset: string }>(`/v1/events?${query}`);
    take(page.events);
    cursor = page.nextOffset;
    if (!page.hasMore || page.events.length === 0) return cursor;
  }
}

function take(events: AnyEvent[]): void {
  const changed = new Map(activity.value);
  for (const event of events) {
    const before = changed.get(event.session_id) ?? IDLE;
    changed.set(event.session_id, after(before, event));
  }
  activity.value = changed;
}

function after(before: Activity, event: AnyEvent): Activity {
  const data = record(event.data);
  switch (event.type) {
    case "turn.started":
      return { ...before, turns: before.turns + 1, running: true };
    case "turn.ended":
      return { ...before, running: false, outcome: text(data.outcome) };
    case "egress.denied":
      return { ...before, denied: before.denied + Math.max(1, number(data.count)) };
    case "session.ended":
      return { ...before, running: false, endReason: text(data.reason) };
    default:
      return before;
  }
}
