// Search the messages of all sessions.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { MessageMatchList } from "../../core/protocol";
import { age } from "../../core/format_time";
import { isFindOpen, findText } from "../transcript/find";
import { Dialog } from "../shared/dialog";
import { api, now, panel } from "../app/store";
import { s } from "../text/index";
import { goTo } from "../app/navigation";

type Hit = MessageMatchList["hits"][number];

export function HighlightedText({ text, ranges }: { text: string; ranges: readonly (readonly [number, number])[] }) {
  const pieces = [];
  let offset = 0;
  for (const [start, end] of ranges) {
    pieces.push(text.slice(offset, start), <mark key={start}>{text.slice(start, end)}</mark>);
    offset = end;
  }
  return <span>{pieces}{text.slice(offset)}</span>;
}

export function SearchDialog() {
  const typed = useSignal("");
  const hits = useSignal<readonly Hit[] | null>(null);
  useEffect(() => {
    const words = typed.value.trim();
    if (!words) return void (hits.value = null);
    const controller = new AbortController();
    const timer = setTimeout(() => {
      void api.get<MessageMatchList>(`api/search?q=${encodeURIComponent(words)}&limit=50`, controller.signal).then((list) => (hits.value = list.hits), () => undefined);
    }, 120);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [typed.value]);
  const openHit = (hit: Hit) => {
    panel.value = "";
    goTo(hit.session_id);
    findText.value = typed.value;
    isFindOpen.value = true;
  };
  return (
    <Dialog title={s.searchEverywhere} wide>
      <input type="search" aria-label={s.searchEverywhere} placeholder={s.searchEverywhere} value={typed.value} autofocus onInput={(event) => (typed.value = event.currentTarget.value)} />
      {hits.value?.length === 0 && <p class="note quiet" role="status">{s.noneFound}</p>}
      <ul class="hits">
        {hits.value?.map((hit) => (
          <li key={`${hit.session_id} ${hit.message_id}`}>
            <button type="button" onClick={() => openHit(hit)}>
              <b>{hit.title || s.untitled}</b> <time>{age(hit.at, now.value)}</time>
              <HighlightedText text={hit.snippet} ranges={hit.marks} />
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
