// Calls of the session API. A token travels in the `Authorization` header only, never in a URL.
import { signal } from "@preact/signals";
import type { components } from "./schema";

export type Schemas = components["schemas"];
export type SessionInfo = Schemas["SessionInfo"];
export type PendingRequest = Schemas["PendingRequest"];
export type Used = Schemas["Used"];
export type Scope = "read" | "drive" | "answer" | "admin";

const TOKEN_KEY = "viv.token";

/** The token of this tab; null without one. */
export const token = signal<string | null>(sessionStorage.getItem(TOKEN_KEY));

/** Whether the server can be reached. */
export const online = signal(true);

/** Takes a token out of the URL fragment `#token=…`, and removes it from the URL and its history entry at once. */
export function takeTokenFromUrl(): void {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (!found?.[1]) return;
  history.replaceState(null, "", location.pathname + location.search + "#/");
  setToken(decodeURIComponent(found[1]));
}

export function setToken(value: string | null): void {
  if (value === null) sessionStorage.removeItem(TOKEN_KEY);
  else sessionStorage.setItem(TOKEN_KEY, value);
  token.value = value;
}

/** A refusal of the server, with its stable code, or a failed connection (`offline`). */
export class ApiProblem extends Error {
  constructor(
    readonly code: string,
    readonly status: number,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

export function headers(extra: Record<string, string> = {}): Record<string, string> {
  return token.value === null ? extra : { ...extra, authorization: `Bearer ${token.value}` };
}

export interface CallOptions {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Calls the API and returns the response; fails with an `ApiProblem`. */
export async function call(path: string, options: CallOptions = {}): Promise<Response> {
  const init: RequestInit = { method: options.method ?? "GET", headers: headers(options.headers), cache: "no-store" };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) {
    init.body = JSON.stringify(options.body);
    init.headers = headers({ "content-type": "application/json", ...options.headers });
  }
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    online.value = false;
    throw new ApiProblem("offline", 0, "The server does not answer.");
  }
  online.value = true;
  if (response.ok) return response;
  const problem = (await response.json().catch(() => ({}))) as Partial<Schemas["Problem"]>;
  if (response.status === 401) setToken(null);
  const text = problem.detail ?? problem.title ?? `The server answered ${response.status}.`;
  throw new ApiProblem(problem.code ?? "unknown", response.status, sentence(text), problem.hint ?? undefined);
}

export async function json<T>(path: string, options: CallOptions = {}): Promise<T> {
  const response = await call(path, options);
  return (await response.json()) as T;
}

export async function post(path: string, body?: unknown, extra: Record<string, string> = {}): Promise<Response> {
  const options: CallOptions = { method: "POST", headers: { "idempotency-key": crypto.randomUUID(), ...extra } };
  if (body !== undefined) options.body = body;
  return call(path, options);
}

/** Returns the API path of a session. */
export function sessionPath(id: string, rest = ""): string {
  return `/v1/sessions/${encodeURIComponent(id)}${rest}`;
}

export function errorText(error: unknown): string {
  if (error instanceof ApiProblem) return error.hint ? `${error.message} Try: ${error.hint}` : error.message;
  return error instanceof Error ? error.message : String(error);
}

function sentence(text: string): string {
  const capital = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
