// Small components that every screen shares.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { errorText } from "../api/client";
import { visible } from "./visible";

export type Tone = "neutral" | "info" | "good" | "warn" | "bad";

export function Badge({ tone = "neutral", children }: { tone?: Tone; children: ComponentChildren }): JSX.Element {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** A page without content: says why, and what to do. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Loading({ what }: { what: string }): JSX.Element {
  return (
    <p class="loading" role="status">
      Loading {what}…
    </p>
  );
}

export function Problem({ text, children }: { text: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="notice bad" role="alert">
      <p>{visible(text)}</p>
      {children}
    </div>
  );
}

export function Command({ children }: { children: string }): JSX.Element {
  return <code class="command">{children}</code>;
}

/** A button that waits for its action and says when it failed. */
export function Action(props: {
  run: () => Promise<unknown>;
  children: ComponentChildren;
  kind?: "primary" | "danger" | "plain";
  disabled?: boolean;
  title?: string;
}): JSX.Element {
  const [busy, setBusy] = useState(false);
  const act = async (): Promise<void> => {
    setBusy(true);
    try {
      await props.run();
    } catch (error) {
      toast(errorText(error), "bad");
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type="button" class={`button ${props.kind ?? "plain"}`} disabled={busy || props.disabled} title={props.title} onClick={() => void act()}>
      {props.children}
    </button>
  );
}

export const toasts = signal<{ id: number; text: string; tone: Tone }[]>([]);
let lastToast = 0;

export function toast(text: string, tone: Tone = "good"): void {
  lastToast += 1;
  const id = lastToast;
  toasts.value = [...toasts.value.slice(-3), { id, text, tone }];
  setTimeout(() => (toasts.value = toasts.value.filter((shown) => shown.id !== id)), tone === "bad" ? 12_000 : 5000);
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((shown) => (
        <div key={shown.id} class={`notice ${shown.tone}`}>
          <p>{visible(shown.text)}</p>
          <button type="button" class="button plain small" onClick={() => (toasts.value = toasts.value.filter(({ id }) => id !== shown.id))}>
            Close
          </button>
        </div>
      ))}
    </div>
  );
}

/** A modal dialog. The browser keeps the focus inside, and Escape closes it. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }): JSX.Element {
  const place = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = place.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={place} aria-label={title} onClose={onClose}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="button plain small" onClick={onClose}>
          Close
        </button>
      </header>
      {children}
    </dialog>
  );
}

/** Asks before an action that cannot be undone. The focus starts on the way out. */
export function Confirm(props: { title: string; text: string; yes: string; run: () => Promise<unknown>; onClose: () => void }): JSX.Element {
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <p>{props.text}</p>
      <div class="buttons">
        <button type="button" class="button plain" autoFocus onClick={props.onClose}>
          Cancel
        </button>
        <Action
          kind="danger"
          run={async () => {
            await props.run();
            props.onClose();
          }}
        >
          {props.yes}
        </Action>
      </div>
    </Dialog>
  );
}

export function Json({ value, label }: { value: unknown; label: string }): JSX.Element {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  return (
    <pre class="output" tabIndex={0} aria-label={label}>
      {visible(text.length > 100_000 ? `${text.slice(0, 100_000)}…` : text)}
    </pre>
  );
}

export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);
