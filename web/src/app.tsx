// The frame of the page: navigation, theme, the state of the connection, and the screen of the route.
import { effect, signal } from "@preact/signals";
import type { JSX } from "preact";
import { online, setToken, token } from "./api/client";
import { href, route } from "./router";
import { AgentsScreen } from "./screens/agents";
import { Gallery } from "./screens/gallery";
import { Inbox } from "./screens/inbox";
import { SessionScreen } from "./screens/session";
import { SessionsScreen } from "./screens/sessions";
import { SignIn } from "./screens/sign-in";
import { UsageScreen } from "./screens/usage";
import { feedState, pending, problem, scopes } from "./state/overview";
import { Empty, Loading, Problem, Toasts } from "./ui/parts";

type Theme = "system" | "light" | "dark";
const THEMES: Theme[] = ["system", "light", "dark"];
const stored = localStorage.getItem("viv.theme") as Theme | null;
const theme = signal<Theme>(stored && THEMES.includes(stored) ? stored : "system");

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
  localStorage.setItem("viv.theme", theme.value);
});

effect(() => {
  const waiting = pending.value.length;
  document.title = waiting > 0 ? `(${waiting}) viv` : "viv Inspector";
});

let known: Set<string> | null = null;
effect(() => {
  const keys = new Set(pending.value.map((one) => `${one.sessionId} ${one.sequence}`));
  const fresh = known && [...keys].some((key) => !known?.has(key));
  known = keys;
  // The text of the agent stays out of the notification: other programs and people can see it.
  if (fresh && document.hidden && typeof Notification !== "undefined" && Notification.permission === "granted") {
    new Notification("An agent waits for you", { tag: "viv" });
  }
});

const LINKS: [string, string][] = [["", "Sessions"], ["inbox", "Inbox"], ["usage", "Usage"], ["agents", "Agents"]];

export function App(): JSX.Element {
  const { parts } = route.value;
  if (parts[0] === "gallery") return <Frame><Gallery /></Frame>;
  if (scopes.value === null) {
    if (token.value === null && problem.value === "" && online.value) return <SignInOrWait />;
    return <main id="main" class="sign-in"><h1>viv Inspector</h1>{problem.value ? <Problem text={problem.value}><p>The page tries again by itself.</p></Problem> : <Loading what="the Inspector" />}</main>;
  }
  if (!scopes.value.includes("read") && !scopes.value.includes("admin")) {
    return <Frame><Problem text="This token cannot read sessions. It needs the scope read." /></Frame>;
  }
  return <Frame><Screen parts={parts} /></Frame>;
}

/** Whether the server was asked without a token: it may need none. */
export const asked = signal(false);

function SignInOrWait(): JSX.Element {
  return asked.value ? <SignIn /> : <main id="main" class="sign-in"><Loading what="the Inspector" /></main>;
}

function Screen({ parts }: { parts: string[] }): JSX.Element {
  const [name, id, tab] = parts;
  if (name === undefined) return <SessionsScreen />;
  if (name === "s" && id) return <SessionScreen key={id} id={id} tab={tab ?? ""} />;
  if (name === "inbox") return <Inbox />;
  if (name === "usage") return <UsageScreen />;
  if (name === "agents") return <AgentsScreen />;
  return <Empty title="There is no such page"><a href={href([])}>All sessions</a></Empty>;
}

function Frame({ children }: { children: JSX.Element }): JSX.Element {
  const here = route.value.parts[0] ?? "";
  const waiting = pending.value.length;
  const lost = !online.value || feedState.value === "lost";
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); document.getElementById("main")?.focus(); }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href={href([])}>viv</a>
        <nav aria-label="Main">
          {LINKS.map(([key, name]) => (
            <a key={key} href={href(key ? [key] : [])} aria-current={here === key || (key === "" && here === "s") ? "page" : undefined}>
              {name}{key === "inbox" && waiting > 0 && <span class="count">{waiting}<span class="unseen"> waiting</span></span>}
            </a>
          ))}
        </nav>
        <div class="top-end">
          <label><span class="unseen">Theme</span>
            <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value as Theme)}>
              {THEMES.map((name) => <option key={name} value={name}>{name}</option>)}
            </select>
          </label>
          {token.value !== null && <button type="button" class="button plain small" onClick={() => { setToken(null); location.reload(); }}>Sign out</button>}
        </div>
      </header>
      {lost && <div class="banner" role="status">The server does not answer. What you see may be old. Trying again.</div>}
      <main id="main" tabIndex={-1}>{children}</main>
      <Toasts />
    </>
  );
}
