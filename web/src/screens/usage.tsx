// Usage and cost of model calls, grouped; as a table and as CSV.
import { useEffect, useState } from "preact/hooks";
import type { JSX } from "preact";
import { type Used, errorText, json } from "../api/client";
import { route, setQuery } from "../router";
import { count, money } from "../ui/format";
import { Badge, Empty, Loading, Problem } from "../ui/parts";
import { oneLine } from "../ui/visible";

const GROUPS = ["day", "model", "agent", "account", "user", "session"];
const PERIODS: [string, string][] = [["", "All time"], ["30d", "30 days"], ["7d", "7 days"], ["1d", "1 day"]];

export function UsageScreen(): JSX.Element {
  const { query } = route.value;
  const by = GROUPS.includes(query.get("by") ?? "") ? (query.get("by") as string) : "day";
  const since = PERIODS.some(([key]) => key === query.get("since")) ? (query.get("since") as string) : "";
  const [rows, setRows] = useState<Used[] | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    setRows(null);
    json<{ rows: Used[] }>(`/v1/usage?by=${by}${since ? `&since=${since}` : ""}`).then(
      (page) => { setRows(page.rows); setProblem(""); },
      (error: unknown) => setProblem(errorText(error)),
    );
  }, [by, since]);
  const most = Math.max(1, ...(rows ?? []).map((row) => row.spentPicos || row.inputTokens + row.outputTokens));
  return (
    <>
      <header class="page-head">
        <h1>Usage</h1>
        <button type="button" class="button plain" disabled={!rows?.length} onClick={() => download(by, rows ?? [])}>Download CSV</button>
      </header>
      <div class="toolbar">
        <label class="field inline">Group by
          <select value={by} onChange={(event) => setQuery("by", event.currentTarget.value)}>{GROUPS.map((name) => <option key={name}>{name}</option>)}</select>
        </label>
        <label class="field inline">Period
          <select value={since} onChange={(event) => setQuery("since", event.currentTarget.value)}>{PERIODS.map(([key, name]) => <option key={key} value={key}>{name}</option>)}</select>
        </label>
      </div>
      {problem && <Problem text={problem} />}
      {!rows && !problem && <Loading what="usage" />}
      {rows?.length === 0 && <Empty title="No model calls in this period" />}
      {rows && rows.length > 0 && (
        <div class="table-box" tabIndex={0} role="region" aria-label="Usage">
          <table class="table">
            <thead><tr><th>{by}</th><th class="number">Calls</th><th class="number">Input</th><th class="number">Cached</th><th class="number">Output</th><th class="number">Cost</th><th class="wide"><span class="unseen">Share</span></th></tr></thead>
            <tbody>
              {rows.map((row) => (
                <tr key={row.name}>
                  <td>{oneLine(row.name) || <span class="muted">none</span>}</td>
                  <td class="number">{count(row.calls)}</td>
                  <td class="number">{count(row.inputTokens + row.cacheWriteTokens + row.cacheWrite1hTokens)}</td>
                  <td class="number">{count(row.cacheReadTokens)}</td>
                  <td class="number">{count(row.outputTokens)}</td>
                  <td class="number">{money(row.spentPicos)} {row.unpricedCalls > 0 && <Badge tone="warn">{`${row.unpricedCalls} without a price`}</Badge>}</td>
                  <td><meter min={0} max={most} value={row.spentPicos || row.inputTokens + row.outputTokens} aria-label={`Share of ${oneLine(row.name, 60)}`} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function download(by: string, rows: Used[]): void {
  const head = [by, "calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "cost_usd"];
  const lines = rows.map((row) => [cell(row.name), row.calls, row.inputTokens, row.cacheReadTokens, row.cacheWriteTokens + row.cacheWrite1hTokens, row.outputTokens, row.spentPicos / 1e12]);
  const url = URL.createObjectURL(new Blob([[head, ...lines].map((line) => line.join(",")).join("\r\n") + "\r\n"], { type: "text/csv" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `viv-usage-by-${by}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Quotes a name. A spreadsheet would run a name that starts like a formula. */
function cell(name: string): string {
  const safe = /^[=+\-@\t\r]/.test(name) ? `'${name}` : name;
  return `"${safe.replaceAll('"', '""')}"`;
}
