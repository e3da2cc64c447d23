// One row of the timeline: the text of people and agents, tool calls, model calls, denials and errors.
import type { JSX } from "preact";
import { type ContentPart, list, number, record, text } from "../api/events";
import type { Row } from "../state/timeline";
import { Ansi } from "../ui/ansi";
import { Diff } from "../ui/diff";
import { clock, count, duration, money } from "../ui/format";
import { Markdown } from "../ui/markdown";
import { Badge, Json, type Tone } from "../ui/parts";
import { oneLine, visible } from "../ui/visible";

const NAMES: Record<string, string> = { prompt: "Prompt", answer: "Agent", tool: "Tool", status: "Status", call: "Model call", denied: "Denied", permission: "Permission", question: "Question", error: "Error", note: "Event", turn: "Turn", end: "Session" };

export function RowView({ row, onRaw }: { row: Row; onRaw: (row: Row) => void }): JSX.Element {
  if (row.kind === "turn") {
    return (
      <h3 class="turn">
        Turn {text(row.first.data.turn_id).split("_").pop()}
        <time class="muted">{clock(row.first.time)}</time>
      </h3>
    );
  }
  return (
    <article class={`row ${row.kind} depth-${Math.min(3, row.depth)}`}>
      <header>
        <span class="row-name">{NAMES[row.kind]}</span>
        <div class="row-title">
          <Title row={row} />
        </div>
        {row.first.synthetic && row.kind !== "prompt" && <Badge>from the host</Badge>}
        <time class="muted" dateTime={row.first.time}>{clock(row.first.time)}</time>
        <button type="button" class="button plain small" onClick={() => onRaw(row)} aria-label={`Raw event ${row.first.sequence}`}>
          {"{ }"}
        </button>
      </header>
      <Body row={row} />
    </article>
  );
}

function Title({ row }: { row: Row }): JSX.Element | null {
  const { data } = row.first;
  switch (row.kind) {
    case "tool":
      return <ToolTitle row={row} />;
    case "call":
      return <CallTitle data={data} />;
    case "denied":
      return (
        <>
          <code>{oneLine(`${text(data.method)} ${text(data.host)}:${number(data.port)}${text(data.path)}`.trim())}</code>
          {number(data.count) > 1 && <Badge>{`${number(data.count)} times`}</Badge>}
        </>
      );
    case "permission":
    case "question":
      return <RequestTitle row={row} />;
    case "error":
      return <span class="strong">{oneLine(text(data.message) || text(data.error) || row.first.type)}</span>;
    case "note":
      return <Note row={row} />;
    case "end":
      return <span>{oneLine(`${END[text(data.reason)] ?? text(data.reason)} ${text(data.message)}`)}</span>;
    default:
      return null;
  }
}

const END: Record<string, string> = { completed: "The session has ended.", error: "The session failed.", terminated: "The session was stopped." };

function ToolTitle({ row }: { row: Row }): JSX.Element {
  const call = parts(row.item).find((part) => part.type === "tool_call");
  const failed = row.item?.status === "failed" || row.result?.status === "failed";
  const done = row.result !== null || row.item?.status !== "in_progress";
  const input = call?.type === "tool_call" ? call.arguments : "";
  return (
    <>
      <code class="strong">{call?.type === "tool_call" ? oneLine(call.name, 80) : "result"}</code>
      <code class="muted clip">{oneLine(summary(input), 160)}</code>
      {failed ? <Badge tone="bad">failed</Badge> : !done && <Badge tone="info">running</Badge>}
    </>
  );
}

function CallTitle({ data }: { data: Record<string, unknown> }): JSX.Element {
  const usage = record(data.usage);
  const read = number(usage.cache_read_tokens);
  const cost = data.unpriced || data.cost_unknown ? "cost not known" : money(number(data.cost_picos));
  return (
    <span class="facts">
      <code>{oneLine(text(data.model_answered) || text(data.model), 80)}</code>
      <span>{`${count(number(usage.input_tokens))} in`}</span>
      {read > 0 && <span>{`${count(read)} cached`}</span>}
      <span>{`${count(number(usage.output_tokens))} out`}</span>
      <span>{data.estimated ? `at most ${cost}` : cost}</span>
      <span>{duration(number(data.duration_micros))}</span>
      {number(data.status) >= 400 && <Badge tone="bad">{`status ${number(data.status)}`}</Badge>}
    </span>
  );
}

function RequestTitle({ row }: { row: Row }): JSX.Element {
  const now = row.last.data;
  const status = text(now.status);
  const reason = text(record(now.metadata).reason);
  const said: Record<string, [string, Tone]> = {
    requested: ["waiting for you", "warn"],
    accept: ["allowed once", "good"],
    accept_for_session: ["allowed for this session", "good"],
    reject: [reason ? `denied: ${reason}` : "denied", "bad"],
    answered: ["answered", "good"],
    rejected: [reason ? `not answered: ${reason}` : "declined", "bad"],
  };
  const [words, tone] = said[status] ?? [status, "neutral" as Tone];
  return (
    <>
      <span>{oneLine(text(now.action) || text(now.prompt))}</span>
      <Badge tone={tone}>{oneLine(words)}</Badge>
    </>
  );
}

function Note({ row }: { row: Row }): JSX.Element {
  const { type, data } = row.first;
  const paths = list(data.added).length + list(data.modified).length + list(data.deleted).length;
  const notes: Record<string, string> = {
    "policy.effective": `Policy in effect, enforced by ${text(data.backend)}`,
    "session.started": `Session started with ${text(record(data.metadata).agent)}`,
    "workspace.changed": `${paths} changed ${paths === 1 ? "path" : "paths"} in the workspace`,
    "turn.ended": `The turn was ${text(data.outcome).replace("_", " ")}`,
    "message.queued": `Queued: ${text(data.message)}`,
    "message.removed": "A queued message was removed",
    "session.recovered": "The server was restarted; the session continues",
    "grant.created": `Allowed for this session: ${text(data.action)}`,
    "grant.revoked": `No longer allowed: ${text(data.action)}`,
    "egress.allowed": `Connected to ${text(data.host)}:${number(data.port)}`,
    "exec.started": `Command: ${list(data.command).map(text).join(" ")}`,
    "exec.finished": `Command ended with ${String(data.exit_code ?? "a signal")}`,
  };
  return <span class="muted">{oneLine(notes[type] ?? type)}</span>;
}

function Body({ row }: { row: Row }): JSX.Element | null {
  if (row.kind === "denied") return <p class="muted small">{visible(`Rule: ${text(row.first.data.rule)}`)}</p>;
  if (row.kind === "permission") return <Asked data={row.last.data} />;
  if (!row.item) return null;
  const shown = [...parts(row.item), ...parts(row.result)];
  return (
    <div class="row-body">
      {shown.map((part, index) => (
        <Part key={index} part={part} row={row} />
      ))}
      {row.streamed !== "" && !shown.some((part) => part.type === "text") && <Streamed row={row} />}
    </div>
  );
}

function Streamed({ row }: { row: Row }): JSX.Element {
  return row.kind === "answer" ? <Markdown text={row.streamed} /> : <Ansi text={row.streamed} />;
}

function Asked({ data }: { data: Record<string, unknown> }): JSX.Element {
  const metadata = record(data.metadata);
  const command = commandOf(metadata);
  return <pre class="output" tabIndex={0} aria-label="The request">{visible(command)}</pre>;
}

/** Returns the exact text that a permission request is about. */
export function commandOf(metadata: Record<string, unknown>): string {
  const input = record(metadata.input);
  const command = metadata.command ?? input.command ?? input.cmd;
  const others = Object.entries(input).filter(([name]) => name !== "command" && name !== "cmd");
  if (typeof command === "string" || Array.isArray(command)) {
    const shown = typeof command === "string" ? command : command.map((word) => quoted(String(word))).join(" ");
    return others.length === 0 ? shown : `${shown}\n${JSON.stringify(Object.fromEntries(others), null, 2)}`;
  }
  return JSON.stringify(metadata.input ?? metadata, null, 2);
}

function quoted(word: string): string {
  return /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function Part({ part, row }: { part: ContentPart; row: Row }): JSX.Element | null {
  switch (part.type) {
    case "text":
      return row.kind === "answer" ? <Markdown text={part.text} /> : <p class="plain-text">{visible(part.text)}</p>;
    case "reasoning":
      return (
        <details>
          <summary>Reasoning</summary>
          <p class="plain-text muted">{visible(part.text)}</p>
        </details>
      );
    case "tool_call":
      return (
        <details>
          <summary>Input</summary>
          <Json value={pretty(part.arguments)} label="Input of the tool" />
        </details>
      );
    case "tool_result":
      return part.output === "" ? <p class="muted small">Completed, without output.</p> : <Ansi text={part.output} />;
    case "file_ref":
      return (
        <div class="file">
          <p class="file-name">
            <Badge>{part.action}</Badge> <code>{oneLine(part.path)}</code>
          </p>
          {part.diff && <Diff text={part.diff} label={oneLine(part.path, 80)} />}
        </div>
      );
    case "image":
      return <p class="muted small">{visible(`Image in the workspace: ${part.path}`)}</p>;
    case "status":
      return <p>{oneLine([part.label, part.detail].filter(Boolean).join(": "))}</p>;
    case "json":
      return plan(part.json) ?? <Json value={part.json} label="Data" />;
    default:
      return <Json value={part} label="Data" />;
  }
}

const STEPS: Record<string, string> = { completed: "done", in_progress: "in progress", pending: "to do" };

/** A plan is a list of steps with a status. */
function plan(value: unknown): JSX.Element | null {
  const steps = list(value).map(record);
  if (steps.length === 0 || !steps.every((step) => STEPS[text(step.status)])) return null;
  return (
    <ul class="plan">
      {steps.map((step, index) => (
        <li key={index} class={text(step.status)}>
          <Badge tone={step.status === "completed" ? "good" : step.status === "in_progress" ? "info" : "neutral"}>{STEPS[text(step.status)]}</Badge>{" "}
          {visible(text(step.text) || text(step.content) || text(step.step))}
        </li>
      ))}
    </ul>
  );
}

function parts(item: Row["item"]): ContentPart[] {
  return item ? [...item.content] : [];
}

function pretty(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return json;
  }
}

function summary(json: string): string {
  const input = record(pretty(json));
  for (const name of ["command", "path", "file_path", "url", "query", "prompt", "pattern"]) {
    const value = input[name];
    if (typeof value === "string") return value;
    if (Array.isArray(value)) return value.join(" ");
  }
  return json;
}
