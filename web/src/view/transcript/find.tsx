// Ctrl+F: the whole conversation, also what is not loaded yet. From the newest message back, and within a message
// from its last word back, every word that is looked for.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { FoundList } from "../../core/protocol";
import { loadEarlier, PAGE_MAX } from "../app/session_sync";
import { giveBack } from "../app/focus";
import { modules } from "../app/lazy";
import type { Marking } from "./match_highlighter";
import { api, current, loading, open, sought } from "../app/store";
import { s } from "../text/index";

export const findIsOpen = signal(false);
export const findText = signal("");

const HITS_MAX = 100;
const STILL_FRAMES = 20;
const REPAINT_MS = 200;

type Hit = FoundList["hits"][number];

export function Find() {
  const hits = useSignal<readonly Hit[]>([]);
  const at = useSignal(0);
  /** Which word of the message, from its last; and how many there are. */
  const word = useRef(0);
  const words = useRef(0);
  const told = useSignal("");
  const marking = useRef<Marking | null>(null);
  const going = useRef(0);
  const input = useRef<HTMLInputElement>(null);
  const id = current.value;
  // At once, not with the next picture: what is typed meanwhile is looked for.
  useLayoutEffect(() => {
    const before = document.activeElement;
    input.current?.select();
    return () => giveBack(before);
  }, []);
  const paint = () => marking.current?.paint(hits.value.flatMap((hit) => document.getElementById(hit.message_id) ?? []));
  useRepainting(paint);

  /** Say which word is marked, of all words as they are read: further up there may be more that are not loaded. */
  const count = () => {
    const many = hits.value.map((hit) => {
      const node = document.getElementById(hit.message_id);
      return open.conversation.entry(hit.message_id) ? Math.max(1, node ? (marking.current?.rangesIn(node).length ?? 0) : 0) : 0;
    });
    const sum = (counts: readonly number[]) => counts.reduce((total, each) => total + each, 0);
    told.value = s.findCount(sum(many.slice(at.value)) - word.current, sum(many), many.includes(0) || many.length === HITS_MAX);
  };

  const show = async () => {
    const mine = ++going.current;
    const hit = hits.value[at.value];
    marking.current?.point(undefined);
    if (!hit) return;
    while (!open.conversation.entry(hit.message_id) && (await loadEarlier(PAGE_MAX).catch(() => false)));
    sought.value = hit.message_id;
    let frames = STILL_FRAMES;
    /** What comes into view gets its height only then, and moves what is below it: so it is brought there until all is still. */
    const bring = () => {
      // A call that is not shown by itself is found by its turn.
      const node = document.getElementById(hit.message_id) ?? document.getElementById(open.conversation.turns.get(hit.turn)?.id ?? "");
      if (!node || mine !== going.current) return;
      const ranges = marking.current?.rangesIn(node) ?? [];
      words.current = ranges.length;
      word.current = Math.min(word.current, Math.max(ranges.length - 1, 0));
      const range = ranges.at(-1 - word.current);
      unfold(range);
      marking.current?.point(range);
      center(node, range);
      node.classList.add("found");
      if (frames === STILL_FRAMES || !frames) count();
      if (frames--) requestAnimationFrame(bring);
      else {
        sought.value = ""; // Whoever closes it and goes there again finds it open again.
        setTimeout(() => node.classList.remove("found"), 1_500);
      }
    };
    requestAnimationFrame(bring);
  };

  useEffect(() => {
    const looked = findText.value.trim();
    const begin = (found: readonly Hit[]) => {
      hits.value = found;
      at.value = word.current = words.current = 0;
      told.value = found.length ? "" : s.noneFound;
      marking.current?.clear();
    };
    if (!looked || !id || loading.value) return begin([]);
    const stop = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const list = await api.get<FoundList>(`api/search?q=${encodeURIComponent(looked)}&session=${id}&limit=${HITS_MAX}`, stop.signal);
        const { Marking } = await modules.marking();
        if (stop.signal.aborted) return;
        begin(list.hits);
        marking.current = new Marking(looked);
        paint();
        void show();
      } catch {
        return; // The line says what is wrong, and typing on asks again.
      }
    }, 150);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [findText.value, id, loading.value]);
  useEffect(() => () => {
    going.current += 1;
    marking.current?.clear();
  }, []);

  const move = (by: 1 | -1) => {
    if (!hits.value.length) return;
    const next = word.current + by;
    if (next >= 0 && next < words.current) word.current = next;
    else {
      at.value = (at.value + by + hits.value.length) % hits.value.length;
      word.current = by > 0 ? 0 : Infinity;
      words.current = 0;
    }
    void show();
  };
  return (
    <form class="find" role="search" onSubmit={(event) => (event.preventDefault(), move(1))}>
      <input ref={input} type="search" aria-label={s.find} placeholder={s.find} value={findText.value} onInput={(event) => (findText.value = event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && event.shiftKey && (event.preventDefault(), move(-1))} />
      <span role="status">{findText.value.trim() && told.value}</span>
      <button type="submit" class="quiet" aria-label={s.findUp} title={`${s.findUp} (Enter)`}>↑</button>
      <button type="button" class="quiet" aria-label={s.findDown} title={`${s.findDown} (Shift Enter)`} onClick={() => move(-1)}>↓</button>
      <button type="button" class="quiet" aria-label={s.close} onClick={() => (findIsOpen.value = false)}>×</button>
    </form>
  );
}

/** Paint again what was drawn again, now and then rather than with every word. */
function useRepainting(paint: () => void): void {
  const again = useRef(paint);
  again.current = paint;
  useEffect(() => {
    let timer = 0;
    const watch = new MutationObserver(() => {
      timer ||= window.setTimeout(() => ((timer = 0), again.current()), REPAINT_MS);
    });
    const turns = document.querySelector(".turns");
    if (turns) watch.observe(turns, { childList: true, subtree: true, characterData: true });
    return () => {
      clearTimeout(timer);
      watch.disconnect();
    };
  }, []);
}

/** Open whatever is closed around a word. */
function unfold(range: Range | undefined): void {
  for (let node = range?.startContainer.parentElement; node; node = node.parentElement) if (node instanceof HTMLDetailsElement) node.open = true;
}

/** Bring a word to the middle of what is read, or its message where the word is not drawn. */
function center(node: Element, range: Range | undefined): void {
  const box = node.closest(".transcript");
  const around = range?.startContainer.parentElement;
  (around ?? node).scrollIntoView({ block: around ? "nearest" : "center", inline: "nearest" });
  const within = around?.closest("pre");
  // What is longer than it is shown is scrolled by itself.
  if (within && range) within.scrollTop += Math.round(range.getBoundingClientRect().top - within.getBoundingClientRect().top - within.clientHeight / 2);
  const place = range?.getBoundingClientRect();
  if (!box || !place?.height) return;
  const middle = box.getBoundingClientRect().top + box.clientHeight / 2;
  if (Math.abs(place.top - middle) > 1) box.scrollTop += place.top - middle;
}
