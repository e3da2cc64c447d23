// The generated types are those of the server's document.
import { strict as assert } from "node:assert";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));

export const stories = [
  ["generated types equal the server's document", async () => {
    const made = execFileSync(at("../node_modules/.bin/openapi-typescript"), [at("../../crates/server/openapi.json"), "--immutable"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1 << 26 });
    assert.equal(readFileSync(at("../src/api/schema.ts"), "utf8").trim(), made.trim(), "run: npm run types");
  }],
];
