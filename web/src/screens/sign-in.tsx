// Sign-in by token, for a browser without a link of `viv ui`.
import { useState } from "preact/hooks";
import type { JSX } from "preact";
import { setToken } from "../api/client";
import { start } from "../state/overview";
import { Command } from "../ui/parts";

export function SignIn(): JSX.Element {
  const [text, setText] = useState("");
  const [failed, setFailed] = useState(false);
  const signIn = async (): Promise<void> => {
    const answer = await fetch("/v1/whoami", { headers: { authorization: `Bearer ${text.trim()}` } }).catch(() => null);
    if (!answer?.ok) return setFailed(true);
    setToken(text.trim());
    await start();
  };
  return (
    <main class="sign-in" id="main">
      <h1>viv Inspector</h1>
      <p>Get a link that signs you in:</p>
      <Command>viv ui</Command>
      <form onSubmit={(event) => { event.preventDefault(); void signIn(); }}>
        <label class="field">Or paste a token
          <input type="password" autoComplete="off" value={text} onInput={(event) => { setText(event.currentTarget.value); setFailed(false); }} />
        </label>
        {failed && <p class="notice bad" role="alert">The server does not accept this token.</p>}
        <button type="submit" class="button primary" disabled={text.trim() === ""}>Sign in</button>
      </form>
      <p class="muted small">The token stays in this tab and is forgotten when the tab closes.</p>
    </main>
  );
}
