// One open session: its events in pages, then as a stream. Every event has the number after the one before, so the page
// knows that it missed nothing.
import { batch, signal } from "@preact/signals";
import { type SessionInfo, errorText, json, sessionPath } from "../api/client";
import { type AnyEvent, parseEvent, record } from "../api/events";
import { type StreamState, follow } from "../api/stream";
import { Timeline } from "./timeline";

export type LinkState = "loading" | StreamState | "recovered" | "failed";

const PAGE_EVENTS = 2000;

export class OpenSession {
  timeline = new Timeline();
  readonly info = signal<SessionInfo | null>(null);
  /** Grows whenever the timeline changed. */
  readonly version = signal(0);
  readonly link = signal<LinkState>("loading");
  readonly problem = signal("");
  private stopStream: () => void = () => {};
  private closed = false;
  private frame = 0;
  private wasLost = false;

  constructor(readonly id: string) {
    void this.open();
  }

  close(): void {
    this.closed = true;
    cancelAnimationFrame(this.frame);
    this.stopStream();
  }

  async refresh(): Promise<void> {
    this.info.value = await json<SessionInfo>(sessionPath(this.id));
  }

  private async open(): Promise<void> {
    try {
      await Promise.all([this.refresh(), this.readPages()]);
    } catch (error) {
      batch(() => {
        this.problem.value = errorText(error);
        this.link.value = "failed";
      });
      return;
    }
    if (this.closed) return;
    if (this.timeline.ended) this.link.value = "ended";
    else this.stream();
  }

  private async readPages(): Promise<void> {
    for (;;) {
      const path = sessionPath(this.id, `/events?events=all&limit=${PAGE_EVENTS}&offset=${this.timeline.last}`);
      const page = await json<{ events: AnyEvent[]; hasMore: boolean }>(path);
      if (this.closed) return;
      for (const event of page.events) this.timeline.add({ ...event, data: record(event.data) });
      this.version.value += 1;
      if (!page.hasMore || page.events.length === 0) return;
    }
  }

  private stream(): void {
    const stream = follow({
      path: sessionPath(this.id, "/events/sse?events=all"),
      after: String(this.timeline.last),
      onFrame: (frame) => {
        const event = parseEvent(frame.data);
        if (!event || event.sequence <= this.timeline.last) return;
        if (!this.timeline.add(event)) return this.restart();
        this.show(event);
      },
      onState: (state) => this.note(state),
    });
    this.stopStream = stream.stop;
  }

  /** A number is missing: reads the gap again before the stream goes on. */
  private restart(): void {
    this.stopStream();
    void this.open();
  }

  private note(state: StreamState): void {
    if (this.closed) return;
    if (state === "lost" && this.timeline.ended) {
      this.stopStream();
      this.link.value = "ended";
    } else if (state === "live" && this.wasLost) {
      this.link.value = "recovered";
      this.wasLost = false;
      setTimeout(() => {
        if (this.link.value === "recovered") this.link.value = "live";
      }, 6000);
    } else {
      this.wasLost ||= state === "lost";
      this.link.value = state;
    }
  }

  private show(event: AnyEvent): void {
    if (event.type === "session.ended" || event.type === "turn.ended") void this.refresh().catch(() => {});
    // Many events arrive in one frame; the page is drawn once for all of them.
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.version.value += 1;
    });
  }
}
