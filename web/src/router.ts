// Routes in the fragment: every state of a screen is a link. `#/s/ID/changes?q=text` is the path `s/ID/changes` with a query.
import { computed, signal } from "@preact/signals";

const fragment = signal(location.hash);
addEventListener("hashchange", () => (fragment.value = location.hash));

export interface Route {
  parts: string[];
  query: URLSearchParams;
}

export const route = computed<Route>(() => {
  const text = fragment.value.replace(/^#\/?/, "");
  const at = text.indexOf("?");
  const path = at < 0 ? text : text.slice(0, at);
  return {
    parts: path.split("/").filter((part) => part !== "").map(decode),
    query: new URLSearchParams(at < 0 ? "" : text.slice(at + 1)),
  };
});

/** Returns the link of a screen. */
export function href(parts: string[], query: Record<string, string> = {}): string {
  const filled = Object.entries(query).filter(([, value]) => value !== "");
  const search = new URLSearchParams(filled).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export function go(link: string): void {
  location.hash = link;
}

/** Changes one value of the query without a new entry in the history. */
export function setQuery(name: string, value: string): void {
  const { parts, query } = route.value;
  history.replaceState(null, "", href(parts, { ...Object.fromEntries(query), [name]: value }));
  refreshRoute();
}

/** Reads the fragment again, after it was replaced without an event. */
export function refreshRoute(): void {
  fragment.value = location.hash;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
