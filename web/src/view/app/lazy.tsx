// Modules that are loaded when they are first needed.

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { s } from "../text/index";

/** List each lazy module once, bundled with everything that only lazy modules import, so that no file loads under two URLs. */
export const lazyModules = {
  agents: importWithRetry(() => import("../agents/agents_page")),
  syntaxHighlight: importWithRetry(() => import("../shared/syntax_highlight")),
  details: importWithRetry(() => import("../details/bundle")),
  matchHighlighter: importWithRetry(() => import("../transcript/match_highlighter")),
  memory: importWithRetry(() => import("../memory/memory_page")),
  settings: importWithRetry(() => import("../settings/bundle")),
};

/**
 * Import a module once; after a failure, a further call imports it again.
 *
 * Browsers remember that an address failed, so a further attempt changes it by its fragment, which no server or cache
 * sees. The address is read from the built code of `load`: errors do not name it in every browser.
 */
function importWithRetry<M>(load: () => Promise<M>): () => Promise<M> {
  const file = /import\(["'`]([^"'`]+)/.exec(load.toString())?.[1];
  let failures = 0;
  let module: Promise<M> | null = null;
  const attempt = () => (failures && file ? import(/* @vite-ignore */ new URL(`${file}#${failures}`, import.meta.url).href) : load());
  return () =>
    (module ??= attempt().catch((error: unknown) => {
      failures += 1;
      module = null;
      throw error;
    }));
}

/** Return a component that loads another one, shows that it loads, and offers to retry after a failure. */
export function lazyComponent<P extends object>(load: () => Promise<FunctionComponent<P>>, failureText: string = s.partMissing): FunctionComponent<P> {
  const component = signal<FunctionComponent<P> | null>(null);
  const failed = signal(false);
  const loadComponent = async () => {
    failed.value = false;
    try {
      const found = await load();
      component.value = found;
    } catch {
      failed.value = true;
    }
  };
  return (props: P) => {
    useEffect(() => void (component.value ?? loadComponent()), []);
    const Component = component.value;
    if (Component) return <Component {...props} />;
    if (!failed.value) return <p class="waiting" role="status">{s.loading}</p>;
    return <p class="waiting" role="alert">{failureText} <button type="button" onClick={() => void loadComponent()}>{s.tryAgain}</button></p>;
  };
}
