// The list of conversations: what needs the owner first, then by day. Rows have one height, so that only those
// in view are drawn, however many there are.

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Session } from "../../core/protocol";
import { age, dayOf } from "../../core/format_time";
import { actions } from "../app/actions";
import { Gear, Glass, Pen, People, Ribbon } from "../shared/icons";
import { needs, watch } from "../memory/pending";
import { Menu, type Item } from "../shared/menu";
import { lookForArchived, readOlder } from "./paging";
import { answering, current, hasArchived, isListed, now, ordered, panel, place, questions, rest, sessions, shelf, showsArchived, titleOf } from "../app/store";
import { s } from "../text/index";

const ROW_PX = matchMedia("(max-width: 760px)").matches ? 44 : 32;
const SPARE_ROWS = 10;

type Line = { key: string; head: string } | { key: string; row: Session; depth: number };

/** The lines of the list: headings and rows, branches below their parent where both are in the same part. */
export function lines(rows: readonly Session[], asking: ReadonlySet<string>, at: number): Line[] {
  const needy = rows.filter((row) => asking.has(row.id) || row.status === "needs_you");
  const pinned = rows.filter((row) => row.pinned && !needy.includes(row));
  const rest = rows.filter((row) => !needy.includes(row) && !row.pinned);
  const found: Line[] = [];
  let last = "";
  const add = (part: readonly Session[], prefix: string, headOf: (row: Session) => string) => {
    const here = new Set(part.map((row) => row.id));
    const [roots, branches] = [false, true].map((isBranch) => part.filter((row) => here.has(row.parent_session_id ?? "") === isBranch));
    const children = Map.groupBy(branches ?? [], (row) => row.parent_session_id);
    const addTree = (row: Session, depth: number) => {
      found.push({ key: prefix + row.id, row, depth });
      for (const child of children.get(row.id) ?? []) addTree(child, Math.min(depth + 1, 3));
    };
    for (const row of roots ?? []) {
      const head = headOf(row);
      if (head !== last) found.push({ key: head, head });
      last = head;
      addTree(row, 0);
    }
  };
  add(needy, "needs ", () => s.needsYou);
  add(pinned, "pinned ", () => s.pinned);
  add(rest, "", (row) => s[dayOf(row.updated_at, at)]);
  return found;
}

function Row({ row, depth }: { row: Session; depth: number }) {
  const editing = useSignal(false);
  const title = titleOf(row);
  const state = row.status !== "idle" ? row.status : row.unread ? "unread" : "idle";
  const label = state === "unread" ? s.unread : s.status[row.status];
  const parent = row.parent_session_id ? sessions.value.get(row.parent_session_id) : undefined;
  if (editing.value) return <Renaming row={row} done={() => (editing.value = false)} />;
  return (
    <li class={`row depth-${depth}`} aria-current={row.id === current.value ? "page" : undefined}>
      <a href={`#${row.id}`} onClick={() => (panel.value = "")}>
        <i class={`dot ${state}`} role="img" aria-label={label} title={label} />
        <span class="title" title={parent && s.branchOf(titleOf(parent))}>{parent && !depth && <span aria-hidden="true">↳ </span>}{title}</span>
        <time>{age(row.updated_at, now.value)}</time>
      </a>
      <Menu id={row.id} title={title} items={itemsOf(row, () => (editing.value = true))} />
    </li>
  );
}

/** What can be done with a conversation. */
function itemsOf(row: Session, rename: () => void): Item[] {
  const goesOn = !row.successor_session_id && row.turns > 0;
  return [
    { text: s.rename, run: rename },
    { text: row.pinned ? s.unpin : s.pin, run: () => actions.pin(row.id, !row.pinned) },
    { text: row.remember ? s.memory.dontRemember : s.memory.doRemember, run: () => actions.remember(row.id, !row.remember) },
    ...(goesOn ? [{ text: s.commands.summarise, run: () => actions.summarise(row.id) }, { text: s.commands.continue, run: () => actions.goOn(row.id) }] : []),
    { text: row.archived ? s.unarchive : s.archive, run: () => actions.archive(row.id, !row.archived) },
    { text: s.delete, run: () => actions.delete(row.id) },
  ];
}

function Renaming({ row, done }: { row: Session; done: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  const isOver = useRef(false);
  useEffect(() => input.current?.select(), []);
  // Once: a field that goes away is left, too.
  const end = (isWanted: boolean) => {
    if (isOver.current) return;
    isOver.current = true;
    const title = input.current?.value.trim();
    if (isWanted && title && title !== row.title) void actions.rename(row.id, title);
    done();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    end(false);
  };
  return (
    <li class="row">
      <form onSubmit={(event) => (event.preventDefault(), end(true))}>
        <input ref={input} defaultValue={row.title} aria-label={s.rename} maxLength={200} onBlur={() => end(true)} onKeyDown={press} />
      </form>
    </li>
  );
}

export function List() {
  const box = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(800);
  useEffect(watch, []);
  const all = useComputed(() => lines(ordered.value, new Set(questions.value.keys()), now.value));
  useEffect(() => {
    const node = box.current;
    if (!node) return;
    const watch = new ResizeObserver(() => (height.value = node.clientHeight));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  useSignalEffect(() => {
    const isNearEnd = top.value + height.value > (all.value.length - SPARE_ROWS) * ROW_PX;
    if (isNearEnd && rest.value[shelf.value] !== null) void readOlder(shelf.value);
    else void lookForArchived();
  });
  // Whoever brings the last one back from the archive looks at the others again: nothing else is left to show.
  useSignalEffect(() => {
    if (showsArchived.value && !hasArchived.value) showsArchived.value = false;
  });
  const first = Math.max(0, Math.floor(top.value / ROW_PX) - SPARE_ROWS);
  const shown = all.value.slice(first, first + Math.ceil(height.value / ROW_PX) + 2 * SPARE_ROWS);
  return (
    <nav class="list" aria-label={s.conversations}>
      <header>
        <h1>{s.name}</h1>
        <button type="button" class="quiet" aria-label={s.searchEverywhere} title={s.searchEverywhere} onClick={() => (panel.value = "search")}><Glass /></button>
        <a class="button quiet" href="#" aria-label={s.newConversation} title={s.newConversation} onClick={() => (panel.value = "")}><Pen /></a>
      </header>
      <div class="rows" ref={box} onScroll={(event) => (top.value = event.currentTarget.scrollTop)}>
        {isListed.value && !all.value.length && <p class="none">{s.noConversations}</p>}
        <ul style={{ paddingTop: `${first * ROW_PX}px`, height: `${all.value.length * ROW_PX}px` }}>
          {shown.map((line) => ("head" in line ? <li key={line.key} class="head">{line.head}</li> : <Row key={line.key} row={line.row} depth={line.depth} />))}
        </ul>
      </div>
      <footer>
        {answering.value?.name === "demo" ? (current.value || place.value) && <span class="demo">{s.demoLabel}</span> : <span class="model" title={answering.value?.why}>{answering.value?.name}</span>}
        {hasArchived.value && (
          <button type="button" class="quiet" onClick={() => (showsArchived.value = !showsArchived.value)}>{showsArchived.value ? s.hideArchived : s.showArchived}</button>
        )}
        <a class="button quiet" href="#agents" aria-label={s.agents.title} title={s.agents.title} aria-current={place.value === "agents" ? "page" : undefined} onClick={() => (panel.value = "")}><People /></a>
        <a class="button quiet" href="#memory" aria-label={s.memory.title} title={needs.value ? s.memory.needsYou : s.memory.title} aria-current={place.value === "memory" ? "page" : undefined} onClick={() => (panel.value = "")}><Ribbon />{needs.value && <i class="dot needs_you" />}</a>
        <button type="button" class="quiet" aria-label={s.settings} title={s.settings} onClick={() => (panel.value = "settings")}><Gear /></button>
      </footer>
    </nav>
  );
}
