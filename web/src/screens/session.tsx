// One session: header with its figures, tabs, the timeline and the message box.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { JSX } from "preact";
import { call, json, post, sessionPath } from "../api/client";
import { go, href, route, setQuery } from "../router";
import { can, pending, reload } from "../state/overview";
import { OpenSession } from "../state/session";
import { type Row, searchText } from "../state/timeline";
import { count, money, plural } from "../ui/format";
import { Action, Badge, Confirm, Dialog, Empty, Json, Loading, Problem, toast } from "../ui/parts";
import { Virtual } from "../ui/virtual";
import { oneLine } from "../ui/visible";
import { Changes } from "./changes";
import { RequestCard } from "./inbox";
import { Policy } from "./policy";
import { RowView } from "./row";
import { Trace } from "./trace";

const TABS: [string, string][] = [["", "Timeline"], ["changes", "Changes"], ["policy", "Policy"], ["trace", "Trace"]];

export function SessionScreen({ id, tab }: { id: string; tab: string }): JSX.Element {
  const open = useMemo(() => new OpenSession(id), [id]);
  useEffect(() => () => open.close(), [open]);
  const info = open.info.value;
  void open.version.value;
  if (open.link.value === "failed") {
    return (
      <Problem text={open.problem.value}>
        <a href={href([])}>Back to the sessions</a>
      </Problem>
    );
  }
  if (!info) return <Loading what="the session" />;
  const title = info.title || info.name || info.sessionId;
  return (
    <div class="session">
      <Head open={open} title={title} />
      <nav class="tabs" aria-label="Views of the session">
        {TABS.map(([key, name]) => (
          <a key={key} href={href(key ? ["s", id, key] : ["s", id])} aria-current={tab === key ? "page" : undefined}>
            {name}
          </a>
        ))}
      </nav>
      {tab === "" && <TimelineView open={open} />}
      {tab === "changes" && <Changes open={open} />}
      {tab === "policy" && <Policy open={open} />}
      {tab === "trace" && <Trace open={open} />}
      {!TABS.some(([key]) => key === tab) && <Empty title="This session has no such view" />}
    </div>
  );
}

function Head({ open, title }: { open: OpenSession; title: string }): JSX.Element {
  // Read here, because a component is drawn again only for the signals that it read itself.
  void open.version.value;
  const { totals, running, ended } = open.timeline;
  const [asked, ask] = useState<"" | "stop" | "rename">("");
  const drives = can("drive");
  const act = (path: string, done: string) => async (): Promise<void> => {
    await post(sessionPath(open.id, path));
    toast(done);
  };
  return (
    <header class="session-head">
      <div>
        <h1>{oneLine(title, 200)}</h1>
        <p class="facts muted">
          <span>{open.info.value?.agent}</span>
          {running ? <Badge tone="info">running</Badge> : ended ? <Badge>ended</Badge> : <Badge tone="good">ready</Badge>}
          <span>{plural(totals.turns, "turn")}</span>
          <span>{`${count(totals.inputTokens)} in, ${count(totals.outputTokens)} out`}</span>
          <span>{money(totals.costPicos)}</span>
          {totals.denied > 0 && <span>{`${totals.denied} denied`}</span>}
        </p>
      </div>
      <div class="buttons">
        {drives && running && <Action run={act("/interrupt", "The turn was interrupted.")}>Interrupt</Action>}
        {drives && <Action run={() => fork(open)}>Fork</Action>}
        {drives && <button type="button" class="button plain" onClick={() => ask("rename")}>Rename</button>}
        <Action run={() => exportBundle(open.id)}>Export</Action>
        {drives && !ended && <button type="button" class="button danger" onClick={() => ask("stop")}>Stop</button>}
      </div>
      {asked === "stop" && (
        <Confirm
          title="Stop this session?"
          text="All its processes end at once. Its changes stay and can be reviewed. A stopped session cannot continue, but it can be forked."
          yes="Stop the session"
          run={act("/terminate", "The session was stopped.")}
          onClose={() => ask("")}
        />
      )}
      {asked === "rename" && <Rename open={open} title={title} onClose={() => ask("")} />}
    </header>
  );
}

async function fork(open: OpenSession): Promise<void> {
  const made = (await (await post(sessionPath(open.id, "/fork"), {})).json()) as { sessionId: string };
  await reload();
  go(href(["s", made.sessionId]));
}

async function exportBundle(id: string): Promise<void> {
  const blob = await (await call(sessionPath(id, "/export"))).blob();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `${id}.tar`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function Rename({ open, title, onClose }: { open: OpenSession; title: string; onClose: () => void }): JSX.Element {
  const [text, setText] = useState(title);
  const save = async (): Promise<void> => {
    open.info.value = await json(sessionPath(open.id), { method: "PATCH", body: { title: text } });
    await reload();
    onClose();
  };
  return (
    <Dialog title="Rename the session" onClose={onClose}>
      <label class="field">
        Title
        <input value={text} maxLength={1000} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <div class="buttons">
        <Action kind="primary" run={save}>Save</Action>
      </div>
    </Dialog>
  );
}

function TimelineView({ open }: { open: OpenSession }): JSX.Element {
  void open.version.value;
  const [follows, setFollows] = useState(true);
  const [raw, setRaw] = useState<Row | null>(null);
  const query = route.value.query.get("q") ?? "";
  const [hit, setHit] = useState(0);
  const rows = [...open.timeline.rows];
  const needle = query.trim().toLowerCase();
  const hits = useMemo(
    () => (needle === "" ? [] : rows.flatMap((row, index) => (searchText(row).includes(needle) ? [index] : []))),
    [needle, open.version.value],
  );
  const waiting = pending.value.filter((request) => request.sessionId === open.id);
  return (
    <div class="timeline-view" data-last={open.timeline.last}>
      <div class="toolbar">
        <input type="search" aria-label="Search in this session" placeholder="Search in this session" value={query}
          onInput={(event) => { setQuery("q", event.currentTarget.value); setHit(0); setFollows(false); }} />
        {needle !== "" && (
          <span class="facts">
            <span role="status">{hits.length === 0 ? "Nothing found" : `${hit + 1} of ${hits.length}`}</span>
            <button type="button" class="button plain small" disabled={hits.length < 2} onClick={() => setHit((hit + 1) % hits.length)}>Next</button>
          </span>
        )}
        <label class="check">
          <input type="checkbox" checked={follows} onChange={(event) => setFollows(event.currentTarget.checked)} /> Follow the end
        </label>
        <LinkNote open={open} />
      </div>
      {rows.length === 0 ? (
        open.link.value === "loading" ? <Loading what="events" /> : <Empty title="Nothing has happened yet" />
      ) : (
        <Virtual
          rows={rows}
          keyOf={(row) => row.key}
          estimate={estimate}
          render={(row, index) => <div class={hits[hit] === index ? "hit" : undefined}><RowView row={row} onRaw={setRaw} /></div>}
          followEnd={follows}
          onFollow={setFollows}
          target={hits[hit] ?? null}
          label="Timeline"
        />
      )}
      {waiting.map((request) => <RequestCard key={request.sequence} request={request} />)}
      {can("drive") && !open.timeline.ended && <Composer open={open} />}
      {raw && (
        <Dialog title={`Raw event ${raw.first.sequence}`} onClose={() => setRaw(null)}>
          <Json value={raw.last === raw.first ? raw.first : [raw.first, raw.last]} label="Raw event" />
        </Dialog>
      )}
    </div>
  );
}

function estimate(row: Row): number {
  return row.kind === "call" || row.kind === "note" || row.kind === "turn" ? 44 : 96;
}

function LinkNote({ open }: { open: OpenSession }): JSX.Element {
  const words: Record<string, [string, "info" | "good" | "warn" | "neutral"]> = {
    loading: ["Loading", "neutral"],
    connecting: ["Connecting", "neutral"],
    live: ["Live", "good"],
    lost: ["Connection lost. Trying again", "warn"],
    recovered: ["Reconnected, nothing missed", "good"],
    ended: ["Complete", "neutral"],
    refused: ["Not allowed to follow", "warn"],
  };
  const [text, tone] = words[open.link.value] ?? ["", "neutral"];
  return <span role="status" class="link-note"><Badge tone={tone}>{text}</Badge></span>;
}

function Composer({ open }: { open: OpenSession }): JSX.Element {
  const [text, setText] = useState("");
  void open.version.value;
  const { running } = open.timeline;
  const send = async (whenBusy: string): Promise<void> => {
    if (text.trim() === "") return;
    await post(sessionPath(open.id, "/messages"), { message: text, whenBusy, clientMessageId: crypto.randomUUID() });
    setText("");
  };
  if (open.info.value?.agentMode === "interactive") return <p class="muted pad">This session shows its own terminal UI. Type there: viv sessions attach {open.id}</p>;
  return (
    <form class="composer" onSubmit={(event) => event.preventDefault()}>
      <textarea aria-label="Message to the agent" rows={2} value={text} placeholder={running ? "The agent is working. A message waits, or steers." : "Message to the agent"}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); event.currentTarget.form?.querySelector("button")?.click(); } }} />
      <Action kind="primary" disabled={text.trim() === ""} run={() => send("queue")} title="Ctrl+Enter">{running ? "Queue" : "Send"}</Action>
      {running && <Action disabled={text.trim() === ""} run={() => send("steer")} title="Interrupts the turn, and comes next">Steer</Action>}
    </form>
  );
}
