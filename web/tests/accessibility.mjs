// No screen violates WCAG 2.2 AA as far as axe can tell, in both themes, on a phone and on a desk.
import { strict as assert } from "node:assert";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { open } from "./stage.mjs";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"];
const WIDTHS = [375, 768, 1440];
const SCREENS = {
  sessions: "#/", inbox: "#/inbox", session: "#/s/seen", changes: "#/s/seen/changes?view=split", policy: "#/s/seen/policy",
  trace: "#/s/seen/trace", usage: "#/usage?by=model", agents: "#/agents", gallery: "#/gallery", missing: "#/nowhere",
};

export const stories = [
  ["every screen is accessible in both themes at every width", async ({ server, chrome }) => {
    await server.session("seen", { title: "Add a note and a workflow", directory: server.workspace("seen") }, ["/demo", "/fetch http://example.com/", "/file .github/workflows/ci.yml"]);
    await server.session("waits", { title: "Waits", agent: "mock" });
    await server.api("POST", "/v1/sessions/waits/messages/stream", { message: "/run git push origin main" });
    await server.session("asks-colour", { title: "A question" }, ["/questions"]);
    const folder = process.env.VIV_WEB_SHOTS;
    if (folder) mkdirSync(folder, { recursive: true });
    for (const scheme of ["light", "dark"]) {
      const page = await open(chrome, server, "#/", { colorScheme: scheme });
      await page.evaluate(AXE);
      for (const [name, link] of Object.entries(SCREENS)) {
        for (const width of WIDTHS) {
          await page.setViewportSize({ width, height: 900 });
          await page.evaluate((to) => (location.hash = to), link);
          await page.locator("main h1, main h2").first().waitFor();
          await page.locator(".loading:not(.gallery .loading)").first().waitFor({ state: "detached" });
          if (folder) await page.screenshot({ path: join(folder, `${name}-${scheme}-${width}.png`) });
          const { violations } = await page.evaluate((tags) => window.axe.run(document, { runOnly: tags }), TAGS);
          const found = violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`);
          assert.deepEqual(found, [], `${name}, ${scheme}, ${width} px`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          assert(wide <= 0, `${name} scrolls sideways at ${width} px`);
        }
      }
      assert.deepEqual(page.problems, []);
    }
  }],
];
