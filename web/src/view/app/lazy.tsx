// Parts of the page whose code is fetched when they are first needed.

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { s } from "../text/index";

/** List each lazy module once, bundled with everything that only lazy modules import, so that no file loads under two URLs. */
export const modules = {
  agents: retried(() => import("../agents/agents_page")),
  colours: retried(() => import("../shared/syntax_highlight")),
  details: retried(() => import("../details/bundle")),
  marking: retried(() => import("../transcript/match_highlighter")),
  memory: retried(() => import("../memory/memory_page")),
  settings: retried(() => import("../settings/bundle")),
};

/**
 * Import a module once; after a failure, a further call imports it again.
 *
 * Browsers remember that an address failed, so a further attempt changes it by its fragment, which no server or cache
 * sees. The address is read from the built code of `load`: errors do not name it in every browser.
 */
function retried<M>(load: () => Promise<M>): () => Promise<M> {
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

/** Stand for the component that `load` brings: until it is there say so, and offer to try again when it cannot be had. */
export function lazily<P extends object>(load: () => Promise<FunctionComponent<P>>, missing: string = s.partMissing): FunctionComponent<P> {
  const part = signal<FunctionComponent<P> | null>(null);
  const failed = signal(false);
  const fetchIt = async () => {
    failed.value = false;
    try {
      const found = await load();
      part.value = found;
    } catch {
      failed.value = true;
    }
  };
  return (props: P) => {
    useEffect(() => void (part.value ?? fetchIt()), []);
    const Part = part.value;
    if (Part) return <Part {...props} />;
    if (!failed.value) return <p class="waiting" role="status">{s.loading}</p>;
    return <p class="waiting" role="alert">{missing} <button type="button" onClick={() => void fetchIt()}>{s.tryAgain}</button></p>;
  };
}
