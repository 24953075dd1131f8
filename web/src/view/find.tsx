// Ctrl+F: the whole conversation, also what is not loaded yet.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { FoundList } from "../core/protocol";
import { loadEarlier, PAGE_MAX } from "./following";
import { api, current, loading, open } from "./state";
import { s } from "./strings";

export const findIsOpen = signal(false);
export const findText = signal("");

const STILL_FRAMES = 20;

type Hit = FoundList["hits"][number];

export function Find() {
  const hits = useSignal<readonly Hit[]>([]);
  const at = useSignal(0);
  const input = useRef<HTMLInputElement>(null);
  const id = current.value;
  useEffect(() => input.current?.select(), []);
  useEffect(() => {
    const words = findText.value.trim();
    if (!words || !id || loading.value) return void (hits.value = []);
    const stop = new AbortController();
    const timer = setTimeout(() => {
      const path = `api/search?q=${encodeURIComponent(words)}&session=${id}&limit=100`;
      void api.get<FoundList>(path, stop.signal).then((list) => {
        hits.value = list.hits;
        at.value = 0;
        if (list.hits[0]) void reveal(list.hits[0]);
      }, () => undefined);
    }, 150);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [findText.value, id, loading.value]);
  const move = (by: number) => {
    if (!hits.value.length) return;
    at.value = (at.value + by + hits.value.length) % hits.value.length;
    const hit = hits.value[at.value];
    if (hit) void reveal(hit);
  };
  return (
    <form class="find" role="search" onSubmit={(event) => (event.preventDefault(), move(1))}>
      <input ref={input} type="search" aria-label={s.find} placeholder={s.find} value={findText.value} onInput={(event) => (findText.value = event.currentTarget.value)} />
      <span role="status">{findText.value.trim() && s.findCount(hits.value.length ? at.value + 1 : 0, hits.value.length)}</span>
      <button type="button" class="quiet" aria-label={s.previous} onClick={() => move(-1)}>↑</button>
      <button type="submit" class="quiet" aria-label={s.next}>↓</button>
      <button type="button" class="quiet" aria-label={s.close} onClick={() => (findIsOpen.value = false)}>×</button>
    </form>
  );
}

/** Bring a message into view, loading what lies before it until it is there. */
async function reveal(hit: Hit): Promise<void> {
  while (!open.conversation.entry(hit.message_id) && (await loadEarlier(PAGE_MAX)));
  bring(hit, STILL_FRAMES);
}

/** What comes into view gets its height only then, and moves what is below it: so it is brought there until all is still. */
function bring(hit: Hit, frames: number): void {
  requestAnimationFrame(() => {
    // A call that is not shown by itself is found by its turn.
    const node = document.getElementById(hit.message_id) ?? document.getElementById(open.conversation.turns.get(hit.turn)?.id ?? "");
    if (!node) return;
    node.scrollIntoView({ block: "center" });
    node.classList.add("found");
    if (frames) bring(hit, frames - 1);
    else setTimeout(() => node.classList.remove("found"), 1_500);
  });
}
