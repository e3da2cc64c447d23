// Hostile text of agents, models and repositories stays text.
import { strict as assert } from "node:assert";
import { open } from "./stage.mjs";

const HOSTILE = [
  "<img src=x onerror=\"window.hacked=1\"><script>window.hacked=1</script>",
  "[link](javascript:window.hacked=1) ![picture](http://tracker.example.com/x.png)",
  "<svg onload=\"window.hacked=1\"></svg><iframe srcdoc=\"<script>parent.hacked=1</script>\"></iframe>",
  "<a href=\"data:text/html,<script>1</script>\" style=\"position:fixed\">cover</a>",
];

export const stories = [
  ["hostile markdown stays inert", async ({ server, chrome }) => {
    await server.session("hostile", { title: "<b onmouseover=window.hacked=1>Hostile</b>" }, HOSTILE.map((text) => `/echo ${text}`));
    const page = await open(chrome, server, "#/s/hostile");
    await page.getByRole("region", { name: "Timeline" }).getByText("cover").first().waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    assert.equal(await page.locator("main img, main iframe, main script, main [style*=fixed], main svg[onload]").count(), 0);
    assert.deepEqual(await page.$$eval("main a", (links) => links.map((link) => link.protocol).filter((kind) => kind !== "http:" && kind !== ":")), []);
    assert.deepEqual(page.foreign, [], "no request leaves the server");
    await page.evaluate(() => (location.hash = "#/"));
    await page.getByRole("link", { name: "<b onmouseover" }).waitFor();
    assert.deepEqual(page.problems, []);
  }],
  ["terminal sequences and hidden characters are shown, not obeyed", async ({ server, chrome }) => {
    await server.session("ansi", { title: "evil\u202egnp.exe" });
    await server.api("POST", "/v1/sessions/ansi/messages", { message: "/run printf '\\033[31mred\\033[0m\\033[2J\\033]0;title\\007 end\\n' \u202e" });
    const page = await open(chrome, server, "#/inbox");
    await page.getByText("evil\\u{202e}gnp.exe").first().waitFor();
    const request = page.getByLabel("The exact request");
    await request.waitFor();
    assert.match(await request.innerText(), /\\u\{202e\}/);
    await page.getByRole("button", { name: "Allow once" }).and(page.locator(":enabled")).click();
    await page.getByText("No agent waits for you").waitFor();
    assert.deepEqual(page.problems, []);
  }],
  ["a huge line is cut, and the page stays usable", async ({ server, chrome }) => {
    await server.session("huge", { title: "Huge" }, [`/echo ${"x".repeat(400_000)}`]);
    const page = await open(chrome, server, "#/s/huge");
    await page.getByRole("region", { name: "Timeline" }).getByText("xxxx").first().waitFor();
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(wide, 0, "the page does not scroll sideways");
  }],
  ["the page's policy refuses inline scripts and other origins", async ({ server, chrome }) => {
    const page = await open(chrome, server);
    const refused = await page.evaluate(async () => {
      const script = document.createElement("script");
      let trusted = "refused";
      try { script.textContent = "window.hacked=1"; trusted = "accepted"; } catch { /* Trusted types refuse it. */ }
      document.body.append(script);
      let markup = "refused";
      try { document.createElement("p").innerHTML = "<b>x</b>"; markup = "accepted"; } catch { /* Trusted types refuse it. */ }
      const other = await fetch("http://127.0.0.1:9/", { mode: "no-cors" }).then(() => "accepted", () => "refused");
      return { trusted, markup, other, hacked: window.hacked };
    });
    assert.deepEqual(refused, { trusted: "refused", markup: "refused", other: "refused", hacked: undefined });
  }],
];
