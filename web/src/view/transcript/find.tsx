// Ctrl+F: find in the whole conversation, including turns that are not loaded. From the newest message back, and
// within a message from its last match back.

import { signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { MessageMatchList } from "../../core/protocol";
import { loadEarlier, PAGE_SIZE_MAX } from "../app/session_sync";
import { restoreFocus } from "../app/focus";
import { lazyModules } from "../app/lazy";
import type { MatchHighlighter } from "./match_highlighter";
import { api, current, loading, active, scrollTarget } from "../app/store";
import { s } from "../text/index";

export const isFindOpen = signal(false);
export const findText = signal("");

const HITS_MAX = 100;
const SETTLE_FRAMES = 20;
const REPAINT_MS = 200;

type Hit = MessageMatchList["hits"][number];

export function FindBar() {
  const hits = useSignal<readonly Hit[]>([]);
  const hitIndex = useSignal(0);
  /** The current match in the message, counted from its last one, and the number of matches. */
  const matchIndex = useRef(0);
  const matchCount = useRef(0);
  const statusText = useSignal("");
  const highlighter = useRef<MatchHighlighter | null>(null);
  const searchRun = useRef(0);
  const input = useRef<HTMLInputElement>(null);
  const id = current.value;
  // A layout effect, so that keys pressed before the next frame reach the input.
  useLayoutEffect(() => {
    const before = document.activeElement;
    input.current?.select();
    return () => restoreFocus(before);
  }, []);
  const highlightAll = () => highlighter.current?.highlightAll(hits.value.flatMap((hit) => document.getElementById(hit.message_id) ?? []));
  useHighlightUpdates(highlightAll);

  /** Show the number of the current match among all. A plus says that turns further up are not loaded. */
  const updateStatus = () => {
    const counts = hits.value.map((hit) => {
      const node = document.getElementById(hit.message_id);
      return active.conversation.entry(hit.message_id) ? Math.max(1, node ? (highlighter.current?.rangesIn(node).length ?? 0) : 0) : 0;
    });
    const sum = (counts: readonly number[]) => counts.reduce((total, each) => total + each, 0);
    statusText.value = s.findCount(sum(counts.slice(hitIndex.value)) - matchIndex.current, sum(counts), counts.includes(0) || counts.length === HITS_MAX);
  };

  const showMatch = async () => {
    const run = ++searchRun.current;
    const hit = hits.value[hitIndex.value];
    highlighter.current?.highlightCurrent(undefined);
    if (!hit) return;
    while (!active.conversation.entry(hit.message_id) && (await loadEarlier(PAGE_SIZE_MAX).catch(() => false)));
    scrollTarget.value = hit.message_id;
    let frames = SETTLE_FRAMES;
    /** Scroll again until the page is still: content gets its height when it comes into view, and moves what is below it. */
    const scrollToMatch = () => {
      // A call that is not rendered by itself is found by its turn.
      const node = document.getElementById(hit.message_id) ?? document.getElementById(active.conversation.turns.get(hit.turn)?.id ?? "");
      if (!node || run !== searchRun.current) return;
      const ranges = highlighter.current?.rangesIn(node) ?? [];
      matchCount.current = ranges.length;
      matchIndex.current = Math.min(matchIndex.current, Math.max(ranges.length - 1, 0));
      const range = ranges.at(-1 - matchIndex.current);
      openDetailsAround(range);
      highlighter.current?.highlightCurrent(range);
      scrollToCenter(node, range);
      node.classList.add("found");
      if (frames === SETTLE_FRAMES || !frames) updateStatus();
      if (frames--) requestAnimationFrame(scrollToMatch);
      else {
        scrollTarget.value = ""; // Reset it, so that a message that was closed opens again when it is found again.
        setTimeout(() => node.classList.remove("found"), 1_500);
      }
    };
    requestAnimationFrame(scrollToMatch);
  };

  useEffect(() => {
    const query = findText.value.trim();
    const setHits = (found: readonly Hit[]) => {
      hits.value = found;
      hitIndex.value = matchIndex.current = matchCount.current = 0;
      statusText.value = found.length ? "" : s.noneFound;
      highlighter.current?.clear();
    };
    if (!query || !id || loading.value) return setHits([]);
    const controller = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const list = await api.get<MessageMatchList>(`api/search?q=${encodeURIComponent(query)}&session=${id}&limit=${HITS_MAX}`, controller.signal);
        const { MatchHighlighter } = await lazyModules.matchHighlighter();
        if (controller.signal.aborted) return;
        setHits(list.hits);
        highlighter.current = new MatchHighlighter(query);
        highlightAll();
        void showMatch();
      } catch {
        return; // The banner says that the server is away. Further typing searches again.
      }
    }, 150);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [findText.value, id, loading.value]);
  useEffect(() => () => {
    searchRun.current += 1;
    highlighter.current?.clear();
  }, []);

  const move = (by: 1 | -1) => {
    if (!hits.value.length) return;
    const next = matchIndex.current + by;
    if (next >= 0 && next < matchCount.current) matchIndex.current = next;
    else {
      hitIndex.value = (hitIndex.value + by + hits.value.length) % hits.value.length;
      matchIndex.current = by > 0 ? 0 : Infinity;
      matchCount.current = 0;
    }
    void showMatch();
  };
  return (
    <form class="find" role="search" onSubmit={(event) => (event.preventDefault(), move(1))}>
      <input ref={input} type="search" aria-label={s.find} placeholder={s.find} value={findText.value} onInput={(event) => (findText.value = event.currentTarget.value)}
        onKeyDown={(event) => event.key === "Enter" && event.shiftKey && (event.preventDefault(), move(-1))} />
      <span role="status">{findText.value.trim() && statusText.value}</span>
      <button type="submit" class="quiet" aria-label={s.findUp} title={`${s.findUp} (Enter)`}>↑</button>
      <button type="button" class="quiet" aria-label={s.findDown} title={`${s.findDown} (Shift Enter)`} onClick={() => move(-1)}>↓</button>
      <button type="button" class="quiet" aria-label={s.close} onClick={() => (isFindOpen.value = false)}>×</button>
    </form>
  );
}

/** Update the highlights after the transcript changed, at most every REPAINT_MS. */
function useHighlightUpdates(highlightAll: () => void): void {
  const latest = useRef(highlightAll);
  latest.current = highlightAll;
  useEffect(() => {
    let timer = 0;
    const watch = new MutationObserver(() => {
      timer ||= window.setTimeout(() => ((timer = 0), latest.current()), REPAINT_MS);
    });
    const turns = document.querySelector(".turns");
    if (turns) watch.observe(turns, { childList: true, subtree: true, characterData: true });
    return () => {
      clearTimeout(timer);
      watch.disconnect();
    };
  }, []);
}

/** Open every <details> around a range. */
function openDetailsAround(range: Range | undefined): void {
  for (let node = range?.startContainer.parentElement; node; node = node.parentElement) if (node instanceof HTMLDetailsElement) node.open = true;
}

/** Scroll a match to the middle of the view, or its message if the match is not rendered. */
function scrollToCenter(node: Element, range: Range | undefined): void {
  const scroller = node.closest(".transcript");
  const parent = range?.startContainer.parentElement;
  (parent ?? node).scrollIntoView({ block: parent ? "nearest" : "center", inline: "nearest" });
  const pre = parent?.closest("pre");
  // A long block has a scroll bar of its own.
  if (pre && range) pre.scrollTop += Math.round(range.getBoundingClientRect().top - pre.getBoundingClientRect().top - pre.clientHeight / 2);
  const rect = range?.getBoundingClientRect();
  if (!scroller || !rect?.height) return;
  const middle = scroller.getBoundingClientRect().top + scroller.clientHeight / 2;
  if (Math.abs(rect.top - middle) > 1) scroller.scrollTop += rect.top - middle;
}
