// All sessions: a live table with a filter and a search, those that wait for a person first.
import { useState } from "preact/hooks";
import type { JSX } from "preact";
import { post, sessionPath } from "../api/client";
import { href, route, setQuery } from "../router";
import { type SessionRow, type Status, can, loaded, reload, rows } from "../state/overview";
import { age, count, money } from "../ui/format";
import { Badge, Command, Confirm, Empty, Loading, type Tone, now, toast } from "../ui/parts";
import { oneLine } from "../ui/visible";
import { NewSession } from "./new-session";

const STATUSES: Record<Status, [string, Tone]> = {
  waiting: ["waiting for you", "warn"],
  running: ["running", "info"],
  idle: ["ready", "good"],
  ended: ["ended", "neutral"],
  failed: ["failed", "bad"],
  damaged: ["damaged", "bad"],
};
const ORDER: Status[] = ["waiting", "running", "idle", "failed", "damaged", "ended"];
const PAGE = 200;

export function SessionsScreen(): JSX.Element {
  const { query } = route.value;
  const [needle, status] = [query.get("q") ?? "", query.get("status") ?? ""];
  const [shown, setShown] = useState(PAGE);
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [asked, ask] = useState<"" | "new" | "stop">("");
  if (!loaded.value) return <Loading what="sessions" />;
  const words = needle.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.value.filter((row) => (status === "" || row.status === status) && words.every((word) => textOf(row).includes(word)));
  const sorted = [...found].sort((a, b) => rank(a) - rank(b) || b.info.updatedAt - a.info.updatedAt);
  const open = [...chosen].filter((id) => rows.value.some(({ info }) => info.sessionId === id && !info.ended));
  const counts = new Map<Status, number>();
  for (const row of rows.value) counts.set(row.status, (counts.get(row.status) ?? 0) + 1);
  const stopAll = async (): Promise<void> => {
    for (const id of open) await post(sessionPath(id, "/terminate"));
    toast(`${open.length} sessions were stopped.`);
    setChosen(new Set());
    await reload();
  };
  return (
    <>
      <header class="page-head">
        <h1>Sessions</h1>
        {can("drive") && <button type="button" class="button primary" onClick={() => ask("new")}>New session</button>}
      </header>
      {rows.value.length === 0 ? (
        <Empty title="No session yet">
          <p>Start one here, or on the command line:</p>
          <Command>viv run mock "say hello"</Command>
        </Empty>
      ) : (
        <>
          <div class="toolbar">
            <input type="search" aria-label="Search sessions" placeholder="Search sessions" value={needle} onInput={(event) => setQuery("q", event.currentTarget.value)} />
            <div class="chips" role="group" aria-label="Filter by status">
              {ORDER.filter((key) => counts.has(key)).map((key) => (
                <button key={key} type="button" class="chip" aria-pressed={status === key} onClick={() => setQuery("status", status === key ? "" : key)}>
                  {STATUSES[key][0]} {counts.get(key)}
                </button>
              ))}
            </div>
            {open.length > 0 && can("drive") && <button type="button" class="button danger" onClick={() => ask("stop")}>{`Stop ${open.length}`}</button>}
          </div>
          {sorted.length === 0 ? <Empty title="No session matches" /> : <Table rows={sorted.slice(0, shown)} chosen={chosen} onChoose={setChosen} />}
          {sorted.length > shown && <button type="button" class="button plain" onClick={() => setShown(shown + PAGE)}>{`Show more (${sorted.length - shown} left)`}</button>}
        </>
      )}
      {asked === "new" && <NewSession onClose={() => ask("")} />}
      {asked === "stop" && <Confirm title={`Stop ${open.length} sessions?`} text="All their processes end at once. Their changes stay." yes="Stop them" run={stopAll} onClose={() => ask("")} />}
    </>
  );
}

function Table({ rows: listed, chosen, onChoose }: { rows: SessionRow[]; chosen: Set<string>; onChoose: (chosen: Set<string>) => void }): JSX.Element {
  const choose = (id: string, on: boolean): void => {
    const after = new Set(chosen);
    if (on) after.add(id);
    else after.delete(id);
    onChoose(after);
  };
  return (
    <div class="table-box" tabIndex={0} role="region" aria-label="Sessions">
      <table class="table sessions">
        <thead>
          <tr>
            {can("drive") && <th><span class="unseen">Choose</span></th>}
            <th>Name</th><th>Status</th><th>Agent</th><th>Model</th><th class="number">Turns</th><th class="number">Tokens</th><th class="number">Cost</th><th class="number">Denied</th><th class="number">Age</th>
          </tr>
        </thead>
        <tbody>
          {listed.map(({ info, status, activity, used, waiting }) => {
            const [name, tone] = STATUSES[status];
            const title = oneLine(info.title || info.name || info.sessionId, 120);
            return (
              <tr key={info.sessionId} class={status}>
                {can("drive") && <td><input type="checkbox" aria-label={`Choose ${title}`} disabled={info.ended} checked={chosen.has(info.sessionId)} onChange={(event) => choose(info.sessionId, event.currentTarget.checked)} /></td>}
                <td class="name"><a href={href(["s", info.sessionId])}>{title}</a></td>
                <td><Badge tone={tone}>{name}{waiting > 1 ? ` (${waiting})` : ""}</Badge></td>
                <td>{info.agent}</td>
                <td class="clip">{info.model ? oneLine(info.model, 40) : <span class="muted">default</span>}</td>
                <td class="number">{activity.turns}</td>
                <td class="number">{used ? count(used.inputTokens + used.cacheReadTokens + used.cacheWriteTokens + used.cacheWrite1hTokens + used.outputTokens) : "0"}</td>
                <td class="number">{used ? money(used.spentPicos) : "$0"}</td>
                <td class="number">{activity.denied > 0 ? <span class="removed">{activity.denied}</span> : "0"}</td>
                <td class="number">{age(info.createdAt, now.value)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function rank(row: SessionRow): number {
  return row.status === "waiting" ? 0 : row.info.ended ? 2 : 1;
}

function textOf({ info }: SessionRow): string {
  return `${info.title ?? ""} ${info.name ?? ""} ${info.sessionId} ${info.agent} ${info.model ?? ""} ${info.directory ?? ""}`.toLowerCase();
}
