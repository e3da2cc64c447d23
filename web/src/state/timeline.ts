// Turns the events of one session into the rows of its timeline. Pure: the same events give the same rows.
//
// An event adds a row or changes an earlier one. Streamed text changes its row in place, so `version` says that it changed.
import { type AnyEvent, type ContentPart, type Item, list, number, record, text } from "../api/events";

export type RowKind = "turn" | "prompt" | "answer" | "tool" | "status" | "call" | "denied" | "permission" | "question" | "error" | "note" | "end";

export interface Row {
  readonly key: string;
  readonly kind: RowKind;
  /** The event that made the row. */
  readonly first: AnyEvent;
  /** The last event that changed it. */
  last: AnyEvent;
  item: Item | null;
  result: Item | null;
  /** Text that was streamed and is not yet part of `item`. */
  streamed: string;
  depth: number;
  version: number;
}

export interface Totals {
  turns: number;
  calls: number;
  inputTokens: number;
  outputTokens: number;
  costPicos: number;
  denied: number;
  errors: number;
}

/** Events without a row: their content is part of another row. */
const SILENT = new Set(["anthropic_request", "anthropic_response", "openai_request", "openai_response", "gemini_request", "gemini_response", "session_registered"]);

export class Timeline {
  readonly rows: Row[] = [];
  readonly events: AnyEvent[] = [];
  readonly totals: Totals = { turns: 0, calls: 0, inputTokens: 0, outputTokens: 0, costPicos: 0, denied: 0, errors: 0 };
  last = 0;
  running = false;
  ended = false;
  private readonly items = new Map<string, Row>();
  private readonly requests = new Map<string, Row>();

  /** Adds an event. Returns false for an event that is known already or comes too early. */
  add(event: AnyEvent): boolean {
    if (event.sequence !== this.last + 1) return false;
    this.last = event.sequence;
    this.events.push(event);
    this.place(event);
    return true;
  }

  private place(event: AnyEvent): void {
    const { data } = event;
    switch (event.type) {
      case "turn.started":
        this.running = true;
        this.totals.turns += 1;
        return void this.row("turn", event);
      case "turn.ended":
        this.running = false;
        if (text(data.outcome) !== "completed") this.row("note", event);
        return;
      case "item.started":
      case "item.completed":
        return this.placeItem(event, data.item as Item);
      case "item.delta":
        return this.stream(event, text(data.item_id), text(data.delta));
      case "permission.requested":
        this.requests.set(text(data.permission_id), this.row("permission", event));
        return;
      case "question.requested":
        this.requests.set(text(data.question_id), this.row("question", event));
        return;
      case "permission.resolved":
      case "question.resolved":
        return this.resolve(event, text(data.permission_id) || text(data.question_id));
      case "llm.call":
        return this.count(event);
      case "egress.denied":
        this.totals.denied += Math.max(1, number(data.count));
        return void this.row("denied", event);
      case "error":
      case "upstream_error":
      case "budget.exceeded":
      case "agent.unparsed":
        this.totals.errors += 1;
        return void this.row("error", event);
      case "session.ended":
        this.ended = true;
        this.running = false;
        return void this.row("end", event);
      default:
        if (!SILENT.has(event.type)) this.row("note", event);
    }
  }

  private row(kind: RowKind, event: AnyEvent): Row {
    const row: Row = { key: `${kind}${event.sequence}`, kind, first: event, last: event, item: null, result: null, streamed: "", depth: 0, version: 0 };
    this.rows.push(row);
    return row;
  }

  private placeItem(event: AnyEvent, item: Item | undefined): void {
    if (!item?.item_id || !Array.isArray(item.content)) return void this.row("note", event);
    const parent = item.parent_id ? this.items.get(item.parent_id) : undefined;
    const known = this.items.get(item.item_id);
    if (known) {
      if (known.item?.item_id === item.item_id) known.item = item;
      else known.result = item;
      if (event.type === "item.completed") known.streamed = "";
      return touch(known, event);
    }
    // A result belongs to the row of its call.
    if (item.kind === "tool_result" && parent?.kind === "tool") {
      parent.result = item;
      this.items.set(item.item_id, parent);
      return touch(parent, event);
    }
    const row = this.row(kindOf(item), event);
    row.item = item;
    row.depth = parent ? parent.depth + 1 : 0;
    this.items.set(item.item_id, row);
  }

  private stream(event: AnyEvent, id: string, delta: string): void {
    const row = this.items.get(id);
    if (!row) return;
    row.streamed += delta;
    touch(row, event);
  }

  private resolve(event: AnyEvent, id: string): void {
    const row = this.requests.get(id);
    if (row) touch(row, event);
  }

  private count(event: AnyEvent): void {
    const { data } = event;
    const usage = record(data.usage);
    this.totals.calls += 1;
    this.totals.inputTokens += number(usage.input_tokens) + number(usage.cache_read_tokens) + number(usage.cache_write_tokens) + number(usage.cache_write_1h_tokens);
    this.totals.outputTokens += number(usage.output_tokens);
    this.totals.costPicos += number(data.cost_picos);
    this.row("call", event);
  }
}

function touch(row: Row, event: AnyEvent): void {
  row.last = event;
  row.version += 1;
}

function kindOf(item: Item): RowKind {
  if (item.kind === "tool_call" || item.kind === "tool_result") return "tool";
  if (item.kind === "status" || item.kind === "system" || item.kind === "unknown") return "status";
  return item.role === "user" ? "prompt" : "answer";
}

/** Returns the text of a row, for the search. */
export function searchText(row: Row): string {
  const parts = [...list(row.item?.content), ...list(row.result?.content)] as ContentPart[];
  return `${row.kind} ${parts.map((part) => JSON.stringify(part)).join(" ")} ${row.streamed} ${row.item ? "" : JSON.stringify(row.first.data)}`.toLowerCase();
}
