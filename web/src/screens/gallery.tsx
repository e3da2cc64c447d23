// Every component and token on one page, to look at and to test.
import type { JSX } from "preact";
import { Ansi } from "../ui/ansi";
import { Diff } from "../ui/diff";
import { Markdown } from "../ui/markdown";
import { Action, Badge, Command, Empty, Loading, Problem, type Tone, toast } from "../ui/parts";

const TONES: Tone[] = ["neutral", "info", "good", "warn", "bad"];
const DIFF = "--- a/notes.md\n+++ b/notes.md\n@@ -1,3 +1,3 @@\n # Notes\n-first\n+second\n last\n";

export function Gallery(): JSX.Element {
  return (
    <>
      <header class="page-head"><h1>Components</h1></header>
      <section class="gallery">
        <h2>Text</h2>
        <p>Body text. <span class="muted">Secondary text.</span> <span class="small">Small text.</span> <code>code</code></p>
        <h2>Badges</h2>
        <p class="facts">{TONES.map((tone) => <Badge key={tone} tone={tone}>{tone}</Badge>)}</p>
        <h2>Buttons</h2>
        <div class="buttons">
          <Action kind="primary" run={async () => toast("Done.")}>Primary</Action>
          <Action run={async () => toast("Done.")}>Plain</Action>
          <Action kind="danger" run={() => Promise.reject(new Error("This failed on purpose."))}>Danger</Action>
          <Action disabled run={async () => {}}>Disabled</Action>
        </div>
        <h2>States</h2>
        <Loading what="an example" />
        <Problem text="This is how a failure looks. Try: viv doctor" />
        <Empty title="Nothing here"><Command>viv run mock "say hello"</Command></Empty>
        <h2>Difference</h2>
        <Diff text={DIFF} label="notes.md" />
        <Diff text={DIFF} split label="notes.md, side by side" />
        <h2>Output</h2>
        <Ansi text={"\u001b[31mred\u001b[0m \u001b[32mgreen\u001b[0m \u001b[1mbold\u001b[0m \u001b[2mdim\u001b[0m \u001b[34mblue\u001b[0m \u001b[33myellow\u001b[0m"} />
        <h2>Markdown</h2>
        <Markdown text={"# Heading\n\nText with **weight** and `code`.\n\n- one\n- two\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"} />
      </section>
    </>
  );
}
