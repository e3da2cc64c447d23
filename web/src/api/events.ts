// The events of a session as the page reads them. The server's document names the contract's types; the others are ours.
import type { Schemas } from "./client";

export type Item = Schemas["Item"];
export type ContentPart = Schemas["ContentPart"];
export type Permission = Schemas["Permission"];
export type Question = Schemas["Question"];

/** An event of any type. `data` is foreign: read it with the functions below. */
export interface AnyEvent {
  readonly sequence: number;
  readonly time: string;
  readonly session_id: string;
  readonly turn_id?: string;
  readonly type: string;
  readonly source: string;
  readonly synthetic: boolean;
  readonly data: Record<string, unknown>;
  readonly raw?: unknown;
}

export function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function number(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

export function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : {};
}

export function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

export function parseEvent(data: string): AnyEvent | null {
  try {
    const event = record(JSON.parse(data));
    if (typeof event.sequence !== "number" || typeof event.type !== "string") return null;
    return { ...event, data: record(event.data) } as unknown as AnyEvent;
  } catch {
    return null;
  }
}
