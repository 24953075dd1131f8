// The list of conversations: what needs the owner first, then by day. Rows have one height, so that only those
// in view are drawn, however many there are.

import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Session } from "../core/protocol";
import { age, dayOf } from "../core/times";
import { actions } from "./actions";
import { Dots, Gear, Glass, Pen, People, Ribbon } from "./icons";
import { needs, watch } from "./memory/watch";
import { current, isDemo, model, now, ordered, panel, place, questions, sessions, showsArchived, titleOf } from "./state";
import { s } from "./strings";

const ROW_PX = matchMedia("(max-width: 760px)").matches ? 44 : 32;
const SPARE_ROWS = 10;

type Line = { key: string; head: string } | { key: string; row: Session; depth: number };

/** The lines of the list: headings and rows, branches below their parent. */
export function lines(rows: readonly Session[], asking: ReadonlySet<string>, at: number): Line[] {
  const needy = rows.filter((row) => asking.has(row.id) || row.status === "needs_you");
  const pinned = rows.filter((row) => row.pinned && !needy.includes(row));
  const rest = rows.filter((row) => !needy.includes(row) && !row.pinned);
  const here = new Set(rest.map((row) => row.id));
  const children = Map.groupBy(rest.filter((row) => row.parent_session_id && here.has(row.parent_session_id)), (row) => row.parent_session_id);
  const found: Line[] = needy.length ? [{ key: "needs", head: s.needsYou }] : [];
  found.push(...needy.map((row) => ({ key: `needs ${row.id}`, row, depth: 0 })));
  if (pinned.length) found.push({ key: "pinned", head: s.pinned }, ...pinned.map((row) => ({ key: `pinned ${row.id}`, row, depth: 0 })));
  const add = (row: Session, depth: number) => {
    found.push({ key: row.id, row, depth });
    for (const child of children.get(row.id) ?? []) add(child, Math.min(depth + 1, 3));
  };
  let day = "";
  for (const row of rest) {
    if (row.parent_session_id && here.has(row.parent_session_id)) continue;
    const its = dayOf(row.updated_at, at);
    if (its !== day) found.push({ key: its, head: s[its] });
    day = its;
    add(row, 0);
  }
  return found;
}

function Row({ row, depth }: { row: Session; depth: number }) {
  const menu = useSignal(false);
  const editing = useSignal(false);
  const title = titleOf(row);
  const state = row.status !== "idle" ? row.status : row.unread ? "unread" : "idle";
  const label = state === "unread" ? s.unread : s.status[row.status];
  if (editing.value) return <Renaming row={row} done={() => (editing.value = false)} />;
  return (
    <li class={`row depth-${depth}`} aria-current={row.id === current.value ? "page" : undefined}>
      <a href={`#${row.id}`} onClick={() => (panel.value = "")}>
        <i class={`dot ${state}`} role="img" aria-label={label} title={label} />
        <span class="title">{title}</span>
        <time>{age(row.updated_at, now.value)}</time>
      </a>
      <button class="quiet" type="button" aria-label={`${s.more}: ${title}`} aria-expanded={menu.value} onClick={() => (menu.value = !menu.value)}><Dots /></button>
      {menu.value && (
        <div class="menu" role="menu" onClick={() => (menu.value = false)} onKeyDown={(event) => event.key === "Escape" && (menu.value = false)}>
          <button role="menuitem" type="button" onClick={() => (editing.value = true)}>{s.rename}</button>
          <button role="menuitem" type="button" onClick={() => void actions.pin(row.id, !row.pinned)}>{row.pinned ? s.unpin : s.pin}</button>
          <button role="menuitem" type="button" onClick={() => void actions.remember(row.id, !row.remember)}>{row.remember ? s.memory.dontRemember : s.memory.doRemember}</button>
          {!row.successor_session_id && row.turns > 0 && <button role="menuitem" type="button" onClick={() => void actions.summarise(row.id)}>{s.commands.summarise}</button>}
          {!row.successor_session_id && row.turns > 0 && <button role="menuitem" type="button" onClick={() => void actions.goOn(row.id)}>{s.commands.continue}</button>}
          <button role="menuitem" type="button" onClick={() => void actions.archive(row.id, !row.archived)}>{row.archived ? s.unarchive : s.archive}</button>
          <button role="menuitem" type="button" onClick={() => actions.delete(row.id)}>{s.delete}</button>
        </div>
      )}
    </li>
  );
}

function Renaming({ row, done }: { row: Session; done: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.select(), []);
  const save = () => {
    const title = input.current?.value.trim();
    if (title && title !== row.title) void actions.rename(row.id, title);
    done();
  };
  return (
    <li class="row">
      <form onSubmit={(event) => (event.preventDefault(), save())}>
        <input ref={input} defaultValue={row.title} aria-label={s.rename} maxLength={200} onBlur={save} onKeyDown={(event) => event.key === "Escape" && done()} />
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
        <ul style={{ paddingTop: `${first * ROW_PX}px`, height: `${all.value.length * ROW_PX}px` }}>
          {shown.map((line) => ("head" in line ? <li key={line.key} class="head">{line.head}</li> : <Row key={line.key} row={line.row} depth={line.depth} />))}
        </ul>
      </div>
      <footer>
        {isDemo.value ? <span class="demo">{s.demoLabel}</span> : <span class="model" title={model.value?.why}>{model.value?.name}</span>}
        {[...sessions.value.values()].some((row) => row.archived) && (
          <button type="button" class="quiet" onClick={() => (showsArchived.value = !showsArchived.value)}>{showsArchived.value ? s.hideArchived : s.showArchived}</button>
        )}
        <a class="button quiet" href="#agents" aria-label={s.agents.title} title={s.agents.title} aria-current={place.value === "agents" ? "page" : undefined} onClick={() => (panel.value = "")}><People /></a>
        <a class="button quiet" href="#memory" aria-label={s.memory.title} title={needs.value ? s.memory.needsYou : s.memory.title} aria-current={place.value === "memory" ? "page" : undefined} onClick={() => (panel.value = "")}><Ribbon />{needs.value && <i class="dot needs_you" />}</a>
        <button type="button" class="quiet" aria-label={s.settings} title={s.settings} onClick={() => (panel.value = "settings")}><Gear /></button>
      </footer>
    </nav>
  );
}
