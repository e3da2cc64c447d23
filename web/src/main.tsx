// Starts the Inspector: takes the token out of the URL first, then reads the server.
import { effect } from "@preact/signals";
import { render } from "preact";
import { takeTokenFromUrl, token } from "./api/client";
import { App, asked } from "./app";
import { refreshRoute } from "./router";
import { start } from "./state/overview";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/screens.css";

takeTokenFromUrl();
refreshRoute();
addEventListener("hashchange", () => {
  if (!location.hash.startsWith("#token=")) return;
  takeTokenFromUrl();
  refreshRoute();
});
let before: string | null | undefined;
effect(() => {
  if (token.value === before) return;
  before = token.value;
  void start().finally(() => (asked.value = true));
});
const place = document.getElementById("app");
if (place) render(<App />, place);
