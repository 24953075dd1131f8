// The list of sessions: those that need the user first, then by day. Rows have one height, so that only visible
// rows are rendered, however many there are.

import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { SessionInfo } from "../../core/protocol";
import { age, dayOf } from "../../core/format_time";
import { actions } from "../app/actions";
import { SettingsIcon, SearchIcon, NewIcon, AgentsIcon, MemoryIcon } from "../shared/icons";
import { needsAttention, pollQueue } from "../memory/pending";
import { Menu, type MenuItem } from "../shared/menu";
import { checkForArchived, loadOlder } from "./paging";
import { activeModel, current, hasArchived, isSessionListLoaded, now, listedSessions, panel, page, questions, nextCursors, sessions, sessionListKind, showsArchived, sessionTitle } from "../app/store";
import { s } from "../text/index";

const ROW_PX = matchMedia("(max-width: 760px)").matches ? 44 : 32;
const OVERSCAN_ROWS = 10;

type ListLine = { key: string; head: string } | { key: string; row: SessionInfo; depth: number };

/** Return the lines of the list: headings and rows, branches below their parent if both are in the same part. */
export function listLines(rows: readonly SessionInfo[], waitingIds: ReadonlySet<string>, at: number): ListLine[] {
  const waitingRows = rows.filter((row) => waitingIds.has(row.id) || row.status === "needs_you");
  const pinned = rows.filter((row) => row.pinned && !waitingRows.includes(row));
  const others = rows.filter((row) => !waitingRows.includes(row) && !row.pinned);
  const result: ListLine[] = [];
  let last = "";
  const add = (part: readonly SessionInfo[], prefix: string, headingFor: (row: SessionInfo) => string) => {
    const ids = new Set(part.map((row) => row.id));
    const [roots, branches] = [false, true].map((isBranch) => part.filter((row) => ids.has(row.parent_session_id ?? "") === isBranch));
    const children = Map.groupBy(branches ?? [], (row) => row.parent_session_id);
    const addTree = (row: SessionInfo, depth: number) => {
      result.push({ key: prefix + row.id, row, depth });
      for (const child of children.get(row.id) ?? []) addTree(child, Math.min(depth + 1, 3));
    };
    for (const row of roots ?? []) {
      const heading = headingFor(row);
      if (heading !== last) result.push({ key: heading, head: heading });
      last = heading;
      addTree(row, 0);
    }
  };
  add(waitingRows, "needs ", () => s.needsYou);
  add(pinned, "pinned ", () => s.pinned);
  add(others, "", (row) => s[dayOf(row.updated_at, at)]);
  return result;
}

function SessionRow({ row, depth }: { row: SessionInfo; depth: number }) {
  const editing = useSignal(false);
  const title = sessionTitle(row);
  const state = row.status !== "idle" ? row.status : row.unread ? "unread" : "idle";
  const label = state === "unread" ? s.unread : s.status[row.status];
  const parent = row.parent_session_id ? sessions.value.get(row.parent_session_id) : undefined;
  if (editing.value) return <RenameForm row={row} close={() => (editing.value = false)} />;
  return (
    <li class={`row depth-${depth}`} aria-current={row.id === current.value ? "page" : undefined}>
      <a href={`#${row.id}`} onClick={() => (panel.value = "")}>
        <i class={`dot ${state}`} role="img" aria-label={label} title={label} />
        <span class="title" title={parent && s.branchOf(sessionTitle(parent))}>{parent && !depth && <span aria-hidden="true">↳ </span>}{title}</span>
        <time>{age(row.updated_at, now.value)}</time>
      </a>
      <Menu id={row.id} title={title} items={menuItems(row, () => (editing.value = true))} />
    </li>
  );
}

/** Return the menu of a session. */
function menuItems(row: SessionInfo, rename: () => void): MenuItem[] {
  const goesOn = !row.successor_session_id && row.turns > 0;
  return [
    { text: s.rename, run: rename },
    { text: row.pinned ? s.unpin : s.pin, run: () => actions.pin(row.id, !row.pinned) },
    { text: row.remember ? s.memory.dontRemember : s.memory.doRemember, run: () => actions.remember(row.id, !row.remember) },
    ...(goesOn ? [{ text: s.commands.summarise, run: () => actions.summarise(row.id) }, { text: s.commands.continue, run: () => actions.continueSession(row.id) }] : []),
    { text: row.archived ? s.unarchive : s.archive, run: () => actions.archive(row.id, !row.archived) },
    { text: s.delete, run: () => actions.delete(row.id) },
  ];
}

function RenameForm({ row, close }: { row: SessionInfo; close: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  const isFinished = useRef(false);
  useEffect(() => input.current?.select(), []);
  // Finish once: removing the input also causes a blur event.
  const finish = (isSaved: boolean) => {
    if (isFinished.current) return;
    isFinished.current = true;
    const title = input.current?.value.trim();
    if (isSaved && title && title !== row.title) void actions.rename(row.id, title);
    close();
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    finish(false);
  };
  return (
    <li class="row">
      <form onSubmit={(event) => (event.preventDefault(), finish(true))}>
        <input ref={input} defaultValue={row.title} aria-label={s.rename} maxLength={200} onBlur={() => finish(true)} onKeyDown={handleKey} />
      </form>
    </li>
  );
}

export function SessionSidebar() {
  const scroller = useRef<HTMLDivElement>(null);
  const top = useSignal(0);
  const height = useSignal(800);
  useEffect(pollQueue, []);
  const all = useComputed(() => listLines(listedSessions.value, new Set(questions.value.keys()), now.value));
  useEffect(() => {
    const node = scroller.current;
    if (!node) return;
    const watch = new ResizeObserver(() => (height.value = node.clientHeight));
    watch.observe(node);
    return () => watch.disconnect();
  }, []);
  useSignalEffect(() => {
    const isNearEnd = top.value + height.value > (all.value.length - OVERSCAN_ROWS) * ROW_PX;
    if (isNearEnd && nextCursors.value[sessionListKind.value] !== null) void loadOlder(sessionListKind.value);
    else void checkForArchived();
  });
  // Leave the archive when its last session was unarchived.
  useSignalEffect(() => {
    if (showsArchived.value && !hasArchived.value) showsArchived.value = false;
  });
  const first = Math.max(0, Math.floor(top.value / ROW_PX) - OVERSCAN_ROWS);
  const shown = all.value.slice(first, first + Math.ceil(height.value / ROW_PX) + 2 * OVERSCAN_ROWS);
  return (
    <nav class="list" aria-label={s.conversations}>
      <header>
        <h1>{s.name}</h1>
        <button type="button" class="quiet" aria-label={s.searchEverywhere} title={s.searchEverywhere} onClick={() => (panel.value = "search")}><SearchIcon /></button>
        <a class="button quiet" href="#" aria-label={s.newConversation} title={s.newConversation} onClick={() => (panel.value = "")}><NewIcon /></a>
      </header>
      <div class="rows" ref={scroller} onScroll={(event) => (top.value = event.currentTarget.scrollTop)}>
        {isSessionListLoaded.value && !all.value.length && <p class="none">{s.noConversations}</p>}
        <ul style={{ paddingTop: `${first * ROW_PX}px`, height: `${all.value.length * ROW_PX}px` }}>
          {shown.map((line) => ("head" in line ? <li key={line.key} class="head">{line.head}</li> : <SessionRow key={line.key} row={line.row} depth={line.depth} />))}
        </ul>
      </div>
      <footer>
        {activeModel.value?.name === "demo" ? (current.value || page.value) && <span class="demo">{s.demoLabel}</span> : <span class="model" title={activeModel.value?.why}>{activeModel.value?.name}</span>}
        {hasArchived.value && (
          <button type="button" class="quiet" onClick={() => (showsArchived.value = !showsArchived.value)}>{showsArchived.value ? s.hideArchived : s.showArchived}</button>
        )}
        <a class="button quiet" href="#agents" aria-label={s.agents.title} title={s.agents.title} aria-current={page.value === "agents" ? "page" : undefined} onClick={() => (panel.value = "")}><AgentsIcon /></a>
        <a class="button quiet" href="#memory" aria-label={s.memory.title} title={needsAttention.value ? s.memory.needsYou : s.memory.title} aria-current={page.value === "memory" ? "page" : undefined} onClick={() => (panel.value = "")}><MemoryIcon />{needsAttention.value && <i class="dot needs_you" />}</a>
        <button type="button" class="quiet" aria-label={s.settings} title={s.settings} onClick={() => (panel.value = "settings")}><SettingsIcon /></button>
      </footer>
    </nav>
  );
}
