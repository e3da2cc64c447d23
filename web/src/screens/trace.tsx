// The trace of a session: turns, model calls, tools and connections on one time axis.
import type { JSX } from "preact";
import { type AnyEvent, number, record, text } from "../api/events";
import type { OpenSession } from "../state/session";
import { duration, money } from "../ui/format";
import { Empty } from "../ui/parts";
import { oneLine } from "../ui/visible";

interface Bar {
  key: string;
  kind: "turn" | "call" | "tool" | "egress" | "denied";
  name: string;
  note: string;
  from: number;
  to: number;
  /** The end of the wait for the first byte. */
  firstByte: number | null;
}

const MOST_BARS = 2000;

/** Pairs the events into bars, in the order of their start. */
export function barsOf(events: readonly AnyEvent[]): Bar[] {
  const bars: Bar[] = [];
  const open = new Map<string, Bar>();
  let cost = 0;
  for (const { type, data, time, turn_id: turn, sequence } of events) {
    const at = Date.parse(time);
    const item = record(data.item);
    const add = (kind: Bar["kind"], name: string, from: number, note = ""): Bar => {
      const bar = { key: `${sequence}`, kind, name, note, from, to: at, firstByte: null };
      bars.push(bar);
      return bar;
    };
    if (type === "turn.started" && turn) open.set(turn, add("turn", `Turn ${turn.split("_").pop()}`, at));
    else if (type === "item.started" && item.kind === "tool_call") open.set(text(item.item_id), add("tool", "tool", at));
    else if (type === "item.completed" && item.kind === "tool_call") {
      const bar = open.get(text(item.item_id));
      const call = record((item.content as unknown[])[0]);
      if (bar) [bar.to, bar.name] = [at, text(call.name) || "tool"];
    } else if (type === "item.completed" && item.kind === "tool_result") {
      const bar = open.get(text(item.parent_id));
      if (bar) bar.to = at;
    } else if (type === "llm.call") {
      const from = at - number(data.duration_micros) / 1000;
      cost += number(data.cost_picos);
      const usage = record(data.usage);
      const bar = add("call", text(data.model_answered) || text(data.model), from, `${number(usage.input_tokens)} in, ${number(usage.output_tokens)} out, ${money(cost)} in total`);
      bar.firstByte = from + number(data.ttft_micros) / 1000;
    } else if (type === "egress.allowed" || type === "egress.denied") {
      add(type === "egress.denied" ? "denied" : "egress", `${text(data.host)}:${number(data.port)}`, at - number(data.duration_micros) / 1000, type === "egress.denied" ? text(data.rule) : "");
    } else if (type === "turn.ended" && turn) {
      const bar = open.get(turn);
      if (bar) [bar.to, bar.note] = [at, text(data.outcome)];
    }
  }
  return bars.sort((a, b) => a.from - b.from || b.to - a.to);
}

const NAMES = { turn: "Turn", call: "Model", tool: "Tool", egress: "Network", denied: "Denied" };

export function Trace({ open }: { open: OpenSession }): JSX.Element {
  void open.version.value;
  const all = barsOf(open.timeline.events);
  const bars = all.slice(-MOST_BARS);
  const first = bars[0]?.from ?? 0;
  const length = Math.max(1, ...bars.map((bar) => bar.to - first));
  if (bars.length === 0) return <Empty title="No turn yet"><p>Turns, model calls, tools and connections appear here.</p></Empty>;
  return (
    <div class="trace" tabIndex={0} role="region" aria-label="Trace">
      {all.length > bars.length && <p class="muted">{`The last ${MOST_BARS} of ${all.length} entries.`}</p>}
      <table class="table">
        <thead><tr><th>Kind</th><th>Name</th><th class="number">Time</th><th class="wide">{`0 to ${duration(length * 1000)}`}</th></tr></thead>
        <tbody>
          {bars.map((bar) => (
            <tr key={bar.key} class={bar.kind}>
              <td>{NAMES[bar.kind]}</td>
              <td><code>{oneLine(bar.name, 60)}</code> <span class="muted small">{oneLine(bar.note, 100)}</span></td>
              <td class="number">{duration((bar.to - bar.from) * 1000)}</td>
              <td><Span bar={bar} first={first} length={length} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Span({ bar, first, length }: { bar: Bar; first: number; length: number }): JSX.Element {
  const at = (time: number): number => ((time - first) / length) * 1000;
  const x = at(bar.from);
  const width = Math.max(3, at(bar.to) - x);
  return (
    <svg viewBox="0 0 1000 12" preserveAspectRatio="none" class={`span ${bar.kind}`} aria-hidden="true">
      <rect x={x} y="1" width={width} height="10" rx="2" />
      {bar.firstByte !== null && <rect class="wait" x={x} y="1" width={Math.max(1, at(bar.firstByte) - x)} height="10" rx="2" />}
    </svg>
  );
}
