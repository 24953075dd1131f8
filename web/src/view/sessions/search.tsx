// Words in all conversations, with what stands around them.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { FoundList } from "../../core/protocol";
import { age } from "../../core/format_time";
import { findIsOpen, findText } from "../transcript/find";
import { Sheet } from "../shared/dialog";
import { api, now, panel } from "../app/store";
import { s } from "../text/index";
import { goTo } from "../app/navigation";

type Hit = FoundList["hits"][number];

export function Marked({ text, marks }: { text: string; marks: readonly (readonly [number, number])[] }) {
  const pieces = [];
  let at = 0;
  for (const [start, end] of marks) {
    pieces.push(text.slice(at, start), <mark key={start}>{text.slice(start, end)}</mark>);
    at = end;
  }
  return <span>{pieces}{text.slice(at)}</span>;
}

export function Search() {
  const typed = useSignal("");
  const found = useSignal<readonly Hit[] | null>(null);
  useEffect(() => {
    const words = typed.value.trim();
    if (!words) return void (found.value = null);
    const stop = new AbortController();
    const timer = setTimeout(() => {
      void api.get<FoundList>(`api/search?q=${encodeURIComponent(words)}&limit=50`, stop.signal).then((list) => (found.value = list.hits), () => undefined);
    }, 120);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [typed.value]);
  const go = (hit: Hit) => {
    panel.value = "";
    goTo(hit.session_id);
    findText.value = typed.value;
    findIsOpen.value = true;
  };
  return (
    <Sheet title={s.searchEverywhere} wide>
      <input type="search" aria-label={s.searchEverywhere} placeholder={s.searchEverywhere} value={typed.value} autofocus onInput={(event) => (typed.value = event.currentTarget.value)} />
      {found.value?.length === 0 && <p class="note quiet" role="status">{s.noneFound}</p>}
      <ul class="hits">
        {found.value?.map((hit) => (
          <li key={`${hit.session_id} ${hit.message_id}`}>
            <button type="button" onClick={() => go(hit)}>
              <b>{hit.title || s.untitled}</b> <time>{age(hit.at, now.value)}</time>
              <Marked text={hit.snippet} marks={hit.marks} />
            </button>
          </li>
        ))}
      </ul>
    </Sheet>
  );
}
