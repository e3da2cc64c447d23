// Server-sent events by fetch, because EventSource cannot send a token. A stream that breaks continues after the last event
// that was received (`Last-Event-ID`), so nothing is lost or doubled.
import { ApiProblem, headers, online, setToken } from "./client";

export interface Frame {
  id: string;
  event: string;
  data: string;
}

export type StreamState = "connecting" | "live" | "lost" | "ended" | "refused";

export interface StreamOptions {
  /** The path without a cursor. */
  path: string;
  /** The cursor to start after. */
  after: string;
  onFrame: (frame: Frame) => void;
  onState: (state: StreamState) => void;
}

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;

/** Follows a stream until `stop` is called or the server says that it is complete. */
export function follow(options: StreamOptions): { stop: () => void } {
  const control = new AbortController();
  void run(options, control.signal);
  return { stop: () => control.abort() };
}

async function run(options: StreamOptions, stopping: AbortSignal): Promise<void> {
  let cursor = options.after;
  let pause = FIRST_PAUSE_MS;
  options.onState("connecting");
  while (!stopping.aborted) {
    try {
      const outcome = await read(options, cursor, stopping, (frame) => {
        if (frame.id !== "") cursor = frame.id;
        pause = FIRST_PAUSE_MS;
        options.onFrame(frame);
      });
      if (outcome === "complete") return options.onState("ended");
    } catch (error) {
      if (stopping.aborted) return;
      if (error instanceof ApiProblem) return options.onState("refused");
    }
    options.onState("lost");
    await wait(pause, stopping);
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
}

/** Reads one connection. A 204, or a stream that ends without a single frame, is complete. */
async function read(
  options: StreamOptions,
  cursor: string,
  stopping: AbortSignal,
  onFrame: (frame: Frame) => void,
): Promise<"complete" | "broken"> {
  const sent = headers({ accept: "text/event-stream", ...(cursor === "" ? {} : { "last-event-id": cursor }) });
  const response = await fetch(options.path, { headers: sent, signal: stopping, cache: "no-store" });
  if (response.status === 204) return "complete";
  if (response.status === 401) setToken(null);
  if (response.status === 401 || response.status === 403 || response.status === 404) {
    throw new ApiProblem("refused", response.status, "The stream was refused.");
  }
  if (!response.ok || !response.body) return "broken";
  online.value = true;
  options.onState("live");
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new FrameParser(onFrame);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return "broken";
    parser.feed(value);
  }
}

/** Splits text into frames. */
export class FrameParser {
  private rest = "";
  private id = "";
  private event = "message";
  private data: string[] = [];

  constructor(private readonly onFrame: (frame: Frame) => void) {}

  feed(text: string): void {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.line(line.endsWith("\r") ? line.slice(0, -1) : line);
  }

  private line(line: string): void {
    if (line === "") {
      if (this.data.length > 0) this.onFrame({ id: this.id, event: this.event, data: this.data.join("\n") });
      this.event = "message";
      this.data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "id") this.id = value;
    else if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value);
  }
}

function wait(ms: number, stopping: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    stopping.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
