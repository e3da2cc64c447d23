// A user story for each screen.
import { strict as assert } from "node:assert";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { open } from "./stage.mjs";

const seen = (page, text) => page.getByText(text).first().waitFor();

export const stories = [
  ["a link of `viv ui` signs in, and its token leaves the URL", async ({ server, chrome }) => {
    const link = (await server.command("ui", "--scope=read", "--ttl=1h")).trim();
    const page = await (await chrome.newContext()).newPage();
    await page.goto(link);
    await page.getByRole("heading", { name: "Sessions" }).waitFor();
    assert(!page.url().includes("token"), page.url());
    await page.goto(`${server.url}/ui/#/inbox`);
    assert.equal(await page.getByRole("button", { name: "New session" }).count(), 0, "a read token sees no buttons");
    await page.reload();
    await page.getByRole("heading", { name: "Inbox" }).waitFor();
    const other = await (await chrome.newContext()).newPage();
    await other.goto(`${server.url}/ui/`);
    await other.getByLabel("Or paste a token").fill("wrong");
    await other.getByRole("button", { name: "Sign in" }).click();
    await seen(other, "The server does not accept this token.");
  }],
  ["a new session answers, and its row shows turns and tokens", async ({ server, chrome }) => {
    const page = await open(chrome, server);
    await page.getByRole("button", { name: "New session" }).click();
    await page.getByLabel("First message").fill("say good morning");
    await page.getByLabel("Title").fill("Greeting");
    await page.getByRole("button", { name: "Start the session" }).click();
    await page.getByRole("heading", { name: "Greeting" }).waitFor();
    await seen(page, "You said: say good morning");
    await page.getByLabel("Message to the agent").fill("and again");
    await page.keyboard.press("Control+Enter");
    await seen(page, "You said: and again");
    await page.getByRole("link", { name: "Sessions" }).click();
    const row = page.getByRole("row", { name: /Greeting/ });
    await row.getByText("ready").waitFor();
    assert.match(await row.innerText(), /\t2\t/, "two turns");
    await page.getByLabel("Search sessions").fill("no such session");
    await seen(page, "No session matches");
    assert(page.url().endsWith("q=no+such+session"), page.url());
    assert.deepEqual([page.problems, page.foreign], [[], []]);
  }],
  ["the timeline shows items of every kind", async ({ server, chrome }) => {
    await server.session("kinds", { title: "Kinds" }, ["/demo", "/fetch http://example.com/", "/error"]);
    const page = await open(chrome, server, "#/s/kinds");
    await seen(page, "an error on demand");
    await seen(page, "example.com:80");
    await seen(page, "Rule: net.enabled: false (balanced:7)");
    await page.getByLabel("Search in this session").fill("forecast");
    await seen(page, "1 of 1");
    await page.getByRole("region", { name: "Timeline" }).getByText("mcp__weather__forecast").waitFor();
    await page.getByRole("button", { name: /Raw event/ }).first().click();
    await page.getByRole("dialog").getByText('"session_id": "kinds"').first().waitFor();
    assert.deepEqual(page.problems, []);
  }],
  ["a permission is answered with the keyboard alone", async ({ server, chrome }) => {
    await server.session("keys", { title: "Keys" }, ["/run echo from-keyboard"]);
    const page = await open(chrome, server, "#/inbox");
    const card = page.getByRole("region", { name: "Permission request of Keys" });
    await card.getByText("echo from-keyboard").waitFor();
    await page.waitForFunction(() => document.title.startsWith("(1)"));
    const focused = () => page.evaluate(() => document.activeElement?.textContent ?? "");
    assert(!/Allow|Deny/.test(await page.evaluate(() => (document.activeElement?.tagName === "BUTTON" ? document.activeElement.textContent : ""))), "no answer has the focus");
    await card.getByRole("button", { name: "Allow once" }).and(page.locator(":enabled")).waitFor();
    for (let count = 0; count < 40 && (await focused()) !== "Allow once"; count += 1) await page.keyboard.press("Tab");
    assert.equal(await focused(), "Allow once");
    await page.keyboard.press("Enter");
    await seen(page, "No agent waits for you");
    await page.evaluate(() => (location.hash = "#/s/keys"));
    await seen(page, "allowed once");
    await page.getByLabel("Output").getByText("from-keyboard").waitFor();
  }],
  ["a new request ignores answers for half a second", async ({ server, chrome }) => {
    await server.session("guard", { title: "Guard" });
    const page = await open(chrome, server, "#/inbox");
    await seen(page, "No agent waits for you");
    await page.evaluate(() => {
      window.states = [];
      new MutationObserver(() => {
        const button = [...document.querySelectorAll("button")].find((one) => one.textContent === "Allow once");
        if (button) window.states.push([performance.now(), button.disabled]);
      }).observe(document.body, { subtree: true, childList: true, attributes: true });
    });
    await server.api("POST", "/v1/sessions/guard/messages", { message: "/run echo guarded" });
    await page.getByRole("button", { name: "Allow once" }).and(page.locator(":enabled")).waitFor();
    const states = await page.evaluate(() => window.states);
    const [first, free] = [states[0], states.find(([, disabled]) => !disabled)];
    assert.equal(first[1], true, "the first state is disabled");
    assert(free[0] - first[0] >= 450, `${free[0] - first[0]} ms`);
    await page.getByLabel("Reason for a denial").fill("not now");
    await page.getByRole("button", { name: "Deny" }).click();
    await seen(page, "No agent waits for you");
    await page.evaluate(() => (location.hash = "#/s/guard"));
    await seen(page, "You said: not now");
  }],
  ["questions with several prompts are answered", async ({ server, chrome }) => {
    await server.session("asks", { title: "Asks" }, ["/questions"]);
    const page = await open(chrome, server, "#/inbox");
    await page.getByLabel("blue").check();
    await page.getByLabel("small").check();
    await page.getByLabel("large").check();
    await page.getByRole("button", { name: "Answer" }).click();
    await seen(page, "No agent waits for you");
    const events = (await server.api("GET", "/v1/sessions/asks/events?events=all")).events;
    const resolved = events.find((event) => event.type === "question.resolved");
    assert.deepEqual(resolved.data.answers, [["blue"], ["small", "large"]]);
  }],
  ["changes are reviewed by class and applied by digest", async ({ server, chrome }) => {
    const directory = server.workspace("project");
    await server.session("changed", { title: "Changed", directory }, ["/file", "/file .github/workflows/ci.yml"]);
    const page = await open(chrome, server, "#/s/changed/changes");
    await seen(page, "Runs by itself");
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("button", { name: "Stop the session" }).click();
    await page.getByRole("button", { name: "Apply all" }).and(page.locator(":enabled")).click();
    await page.getByRole("button", { name: "Apply", exact: true }).click();
    await seen(page, "paths were applied.");
    assert(existsSync(join(directory, "mock-note.md")));
    assert(!existsSync(join(directory, ".github/workflows/ci.yml")), "not confirmed");
    await page.getByLabel(/Confirm that/).check();
    await page.getByRole("button", { name: "Apply all" }).click();
    await page.getByRole("button", { name: "Apply", exact: true }).click();
    await seen(page, "No changes");
    assert(existsSync(join(directory, ".github/workflows/ci.yml")));
  }],
  ["the policy says what is allowed and counts denials", async ({ server, chrome }) => {
    await server.session("policy", { title: "Policy" }, ["/fetch http://example.com/", "/fetch http://example.com/"]);
    const page = await open(chrome, server, "#/s/policy/policy");
    await seen(page, "No host path outside the workspace is writable.");
    const denied = page.getByRole("region", { name: "Denied attempts" });
    assert.match(await denied.getByRole("row", { name: /example.com:80/ }).innerText(), /\t[12]\tnet.enabled: false/);
    await page.getByRole("link", { name: "Trace" }).click();
    await page.getByRole("region", { name: "Trace" }).getByText("fetch").first().waitFor();
  }],
  ["the capability table equals the server's", async ({ server, chrome }) => {
    const page = await open(chrome, server, "#/agents");
    await page.locator("[data-capability]").first().waitFor();
    const shown = await page.$$eval("[data-capability] [data-agent]", (cells) => cells.map((cell) => [cell.dataset.agent, cell.parentElement.dataset.capability, cell.textContent === "yes"]));
    const { agents } = await server.api("GET", "/v1/agents");
    const told = agents.flatMap((agent) => Object.entries(agent.capabilities).map(([name, has]) => [agent.id, name, has]));
    assert(told.length > 50);
    assert.deepEqual(shown.sort(), told.sort());
  }],
  ["usage is grouped and the group is part of the link", async ({ server, chrome }) => {
    await server.session("used", {}, ["say hello"]);
    const page = await open(chrome, server, "#/usage?by=model");
    await page.getByRole("row", { name: /scripted/ }).waitFor();
    await page.getByLabel("Group by").selectOption("agent");
    await page.getByRole("row", { name: /mock/ }).waitFor();
    assert(page.url().endsWith("#/usage?by=agent"), page.url());
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Download CSV" }).click()]);
    assert.equal(download.suggestedFilename(), "viv-usage-by-agent.csv");
  }],
  ["sessions are stopped together", async ({ server, chrome }) => {
    for (const id of ["bulk-1", "bulk-2"]) await server.session(id, { title: id });
    const page = await open(chrome, server, "#/?q=bulk");
    for (const id of ["bulk-1", "bulk-2"]) await page.getByLabel(`Choose ${id}`).check();
    await page.getByRole("button", { name: "Stop 2" }).click();
    await page.getByRole("button", { name: "Stop them" }).click();
    await seen(page, "2 sessions were stopped.");
    for (const id of ["bulk-1", "bulk-2"]) await page.getByRole("row", { name: new RegExp(`${id}.*ended`) }).waitFor();
  }],
  ["a server that is killed and restarted in mid-stream loses nothing", async ({ server, chrome }) => {
    await server.session("killed", { title: "Killed" }, ["say before"]);
    const page = await open(chrome, server, "#/s/killed");
    await seen(page, "You said: say before");
    await server.api("POST", "/v1/sessions/killed/messages", { message: "/slow 100" });
    await seen(page, "running");
    await server.kill();
    await seen(page, "Connection lost. Trying again");
    await server.start();
    await seen(page, "Reconnected, nothing missed");
    await server.api("POST", "/v1/sessions/killed/messages/stream", { message: "say after" });
    await seen(page, "You said: say after");
    const { events } = await server.api("GET", "/v1/sessions/killed/events?events=all");
    // The timeline takes an event only after the one before, so the last number says that it has all of them.
    const last = events.at(-1).sequence;
    assert.deepEqual(events.map((event) => event.sequence), Array.from({ length: last }, (_, index) => index + 1));
    await page.locator(`.timeline-view[data-last="${last}"]`).waitFor();
  }],
];
