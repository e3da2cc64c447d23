// Runs the stories in a real browser against a real server: `npm test`, or `npm test -- WORD` for those with a word.
import { strict as assert } from "node:assert";
import { browser, Server } from "./stage.mjs";
import { stories as security } from "./security.mjs";
import { stories as screens } from "./screens.mjs";
import { stories as accessibility } from "./accessibility.mjs";
import { stories as types } from "./types.mjs";

const wanted = process.argv[2] ?? "";
const all = [...types, ...screens, ...security, ...accessibility].filter(([name]) => name.includes(wanted));
assert(all.length > 0, `no story contains ${wanted}`);
const started = Date.now();
let failed = 0;
const [server, chrome] = [new Server(), await browser()];
await server.start();
try {
  for (const [name, run] of all) {
    const from = Date.now();
    try {
      await run({ server, chrome });
      console.log(`ok    ${name} (${Date.now() - from} ms)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}\n${error.stack ?? error}`);
    } finally {
      for (const context of chrome.contexts()) await context.close();
    }
  }
} finally {
  await chrome.close();
  await server.remove();
}
console.log(`${all.length - failed} of ${all.length} stories hold, ${((Date.now() - started) / 1000).toFixed(0)} s`);
process.exitCode = failed === 0 ? 0 : 1;
