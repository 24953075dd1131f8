import { defineConfig } from "vite";

// The page is served from wherever the server is, also below a path: every address in it is relative.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/holdfast/http/built",
    assetsDir: "page",
    emptyOutDir: true,
    target: "es2022",
    // What a part that comes later needs is there already: only the page itself names what to fetch with it.
    modulePreload: { polyfill: false, resolveDependencies: (_, needed, { hostType }) => (hostType === "html" ? needed : []) },
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    // What the page begins with and a later part needs too is one file: a dozen small ones would be fetched for it, and pack worse.
    rolldownOptions: { output: { codeSplitting: { groups: [{ name: "shared", tags: ["$initial"], minShareCount: 2 }] } } },
  },
  worker: { format: "es" },
});
