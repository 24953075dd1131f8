// The way to the memory page: its code is fetched when somebody goes there.

import { signal } from "@preact/signals";
import type { FunctionComponent } from "preact";
import { useEffect } from "preact/hooks";
import { s } from "../strings";

const page = signal<FunctionComponent | null>(null);
const failed = signal(false);

async function fetchIt(): Promise<void> {
  failed.value = false;
  try {
    page.value = (await import("./page")).Memory;
  } catch {
    failed.value = true;
  }
}

export function MemoryPage() {
  useEffect(() => void (page.value ?? fetchIt()), []);
  const Page = page.value;
  if (Page) return <Page />;
  if (!failed.value) return <p class="waiting" role="status">{s.loading}</p>;
  return <p class="waiting" role="alert">{s.memory.failedTitle} <button type="button" onClick={() => void fetchIt()}>{s.tryAgain}</button></p>;
}
