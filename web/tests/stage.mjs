// A real `viv serve` with the mock agent, and a real Chromium. Each story gets its own page.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const VIV = process.env.VIV ?? new URL("../../target/debug/viv", import.meta.url).pathname;
const CHROMIUM = process.env.VIV_TEST_CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** A server on a data directory. It can be killed and started again on the same port. */
export class Server {
  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), "viv-web-"));
    this.data = join(this.folder, "data");
    this.port = 0;
  }

  async start() {
    const args = ["--data-dir", this.data, "--json", "serve", "--listen", `127.0.0.1:${this.port}`];
    this.child = spawn(VIV, args, { stdio: ["ignore", "pipe", "ignore"] });
    this.ended = new Promise((resolve) => this.child.once("exit", resolve));
    const lines = createInterface({ input: this.child.stdout });
    const first = await Promise.race([new Promise((resolve) => lines.once("line", resolve)), this.ended.then(() => null)]);
    if (first === null) throw new Error("the server ended at its start");
    this.url = JSON.parse(first).listening;
    this.port = Number(new URL(this.url).port);
    this.token = readFileSync(join(this.data, "api.token"), "utf8").trim();
  }

  async kill(signal = "SIGKILL") {
    this.child.kill(signal);
    await this.ended;
  }

  async remove() {
    await this.kill("SIGTERM");
    rmSync(this.folder, { recursive: true, force: true });
  }

  workspace(name) {
    const path = join(this.folder, name);
    mkdirSync(path, { recursive: true });
    return path;
  }

  async api(method, path, body) {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
    const response = await fetch(this.url + path, { method, headers, ...(body === undefined ? {} : { body: JSON.stringify(body) }) });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return /json/.test(response.headers.get("content-type") ?? "") ? JSON.parse(text) : text;
  }

  /** Creates a session of the mock agent, and waits for the answer to each message. */
  async session(id, options = {}, messages = []) {
    await this.api("POST", `/v1/sessions/${id}`, { agent: "mock", ...options });
    for (const message of messages) await this.api("POST", `/v1/sessions/${id}/messages/stream`, { message });
  }

  async command(...args) {
    const child = spawn(VIV, ["--data-dir", this.data, ...args], { stdio: ["ignore", "pipe", "inherit"] });
    let text = "";
    child.stdout.on("data", (piece) => (text += piece));
    const code = await new Promise((resolve) => child.once("close", resolve));
    if (code !== 0) throw new Error(`viv ${args.join(" ")} ended with ${code}`);
    return text;
  }
}

export async function browser() {
  return chromium.launch({ executablePath: CHROMIUM, args: FLAGS, headless: true });
}

/** Opens a page that is signed in and reports everything that went wrong in it. */
export async function open(chrome, server, path = "#/", options = {}) {
  const context = await chrome.newContext({ viewport: { width: 1440, height: 900 }, reducedMotion: "reduce", ...options });
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(String(error)));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource/.test(message.text())) page.problems.push(message.text());
  });
  page.foreign = [];
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== server.url && !request.url().startsWith("blob:")) page.foreign.push(request.url());
  });
  const token = options.token ?? server.token;
  await page.goto(`${server.url}/ui/#token=${token}`);
  await page.getByRole("navigation", { name: "Main" }).waitFor();
  if (path !== "#/") await page.evaluate((to) => (location.hash = to), path);
  return page;
}
