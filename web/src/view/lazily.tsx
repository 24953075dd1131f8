// Parts of the page whose code is fetched when they are first shown.

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { s } from "./strings";

/** Stands for what `load` brings: until it is there says so, and lets it be tried again when it cannot be had. */
export function lazily<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
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
    return <p class="waiting" role="alert">{s.partMissing} <button type="button" onClick={() => void fetchIt()}>{s.tryAgain}</button></p>;
  };
}
