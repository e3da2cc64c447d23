// Builds the Inspector into dist/ui, which the `server` crate embeds. Every asset is a file of its own: the page's policy
// forbids inline scripts, inline styles and data URLs.
import { defineConfig } from "vite";

export default defineConfig({
  base: "/ui/",
  build: {
    outDir: "dist/ui",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
  },
  server: { proxy: { "/v1": "http://127.0.0.1:2468" } },
});
