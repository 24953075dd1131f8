import { defineConfig } from "vite";

// The page is served from wherever the server is, also below a path: every address in it is relative.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/holdfast/server/built",
    assetsDir: "page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
  },
  worker: { format: "es" },
});
