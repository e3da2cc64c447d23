// A unified diff, unified or side by side. A line is marked by its sign as well as its colour.
import type { JSX } from "preact";
import { visible } from "./visible";

interface Line {
  kind: "add" | "del" | "same" | "hunk";
  text: string;
  old: number | null;
  new: number | null;
}

const LONGEST_LINE = 2000;
const MOST_LINES = 3000;

export function parse(diff: string): Line[] {
  const lines: Line[] = [];
  let [before, after, inside] = [0, 0, false];
  for (const raw of diff.replace(/\n$/, "").split("\n")) {
    const text = raw.length > LONGEST_LINE ? `${raw.slice(0, LONGEST_LINE)}…` : raw;
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)/.exec(raw);
    if (hunk) {
      [before, after, inside] = [Number(hunk[1]), Number(hunk[2]), true];
      lines.push({ kind: "hunk", text, old: null, new: null });
    } else if (!inside) {
      continue;
    } else if (raw.startsWith("+")) lines.push({ kind: "add", text: text.slice(1), old: null, new: after++ });
    else if (raw.startsWith("-")) lines.push({ kind: "del", text: text.slice(1), old: before++, new: null });
    else if (!raw.startsWith("\\")) lines.push({ kind: "same", text: text.slice(1), old: before++, new: after++ });
  }
  return lines;
}

const SIGN = { add: "+", del: "−", same: " ", hunk: "" };

export function Diff({ text, split = false, label }: { text: string; split?: boolean; label: string }): JSX.Element {
  const all = parse(text);
  const lines = all.slice(0, MOST_LINES);
  if (lines.length === 0) return <pre class="output" tabIndex={0}>{visible(text.slice(0, 100_000))}</pre>;
  return (
    <div class={split ? "diff split" : "diff"} tabIndex={0} role="region" aria-label={`Changes of ${label}`}>
      <table>
        <tbody>{split ? sides(lines) : lines.map((line, index) => <Unified key={index} line={line} />)}</tbody>
      </table>
      {all.length > lines.length && <p class="muted pad">{all.length - lines.length} more lines are not shown.</p>}
    </div>
  );
}

function Unified({ line }: { line: Line }): JSX.Element {
  if (line.kind === "hunk") return <tr class="hunk"><td colSpan={3}>{visible(line.text)}</td></tr>;
  return (
    <tr class={line.kind}>
      <td class="line-number">{line.new ?? line.old}</td>
      <td class="sign">{SIGN[line.kind]}</td>
      <td class="code">{visible(line.text)}</td>
    </tr>
  );
}

function sides(lines: Line[]): JSX.Element[] {
  const rows: JSX.Element[] = [];
  for (let at = 0; at < lines.length; ) {
    const line = lines[at];
    if (!line) break;
    if (line.kind === "hunk" || line.kind === "same") {
      rows.push(line.kind === "hunk" ? <tr key={at} class="hunk"><td colSpan={4}>{visible(line.text)}</td></tr> : pair(at, line, line));
      at += 1;
      continue;
    }
    const gone: Line[] = [];
    const come: Line[] = [];
    for (; lines[at]?.kind === "del"; at += 1) gone.push(lines[at] as Line);
    for (; lines[at]?.kind === "add"; at += 1) come.push(lines[at] as Line);
    for (let row = 0; row < Math.max(gone.length, come.length); row += 1) rows.push(pair(`${at}-${row}`, gone[row], come[row]));
  }
  return rows;
}

function pair(key: number | string, left: Line | undefined, right: Line | undefined): JSX.Element {
  return (
    <tr key={key}>
      <td class="line-number">{left?.old}</td>
      <td class={`code ${left?.kind === "del" ? "del" : ""}`}>{left && `${SIGN[left.kind]} ${visible(left.text)}`}</td>
      <td class="line-number">{right?.new}</td>
      <td class={`code ${right?.kind === "add" ? "add" : ""}`}>{right && `${SIGN[right.kind]} ${visible(right.text)}`}</td>
    </tr>
  );
}
