// All memories: search, edit, forget and add them.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { MemoryItem } from "../../core/protocol";
import { date } from "../../core/format_time";
import { now, sessions } from "../app/store";
import { s } from "../text/index";
import { providerInfo, add, cursor, edit, forget, load, loadError, visibleMemories, searchText } from "./store";

const SEARCH_MS = 150;
const TEXT_CHARS_MAX = 2_000;

export function MemoryList() {
  const isOff = providerInfo.value?.provider === "off";
  const list = useRef<HTMLUListElement>(null);
  const searchInput = useRef<HTMLInputElement>(null);
  /** Focus the next memory after one was forgotten. */
  const forgetAt = (id: string, index: number) => {
    forget(id);
    requestAnimationFrame(() => {
      const next = list.current?.children[Math.min(index, visibleMemories.value.length - 1)];
      (next?.querySelector<HTMLElement>(".forget") ?? searchInput.current)?.focus();
    });
  };
  const isSearching = Boolean(searchText.value.trim());
  // If memories cannot be listed, show neither an empty list nor a search.
  const isShown = !loadError.value && providerInfo.value?.shows === true;
  const canBeEmpty = isShown && !isOff && (providerInfo.value?.health.ok === true || isSearching);
  if (!visibleMemories.value.length && !canBeEmpty) return null;
  return (
    <section aria-labelledby="memory-known">
      <h3 id="memory-known">{s.memory.known}</h3>
      {isShown && (
        <div class="memory-tools">
          <SearchInput inputRef={searchInput} />
          {!isOff && <AddForm />}
        </div>
      )}
      {!visibleMemories.value.length && (isSearching ? <p class="note quiet" role="status">{s.noneFound}</p> : <div class="none"><p>{s.memory.none}</p><p class="note quiet">{s.memory.noneHelp}</p></div>)}
      <ul class="memories" ref={list}>{visibleMemories.value.map((memory, place) => <MemoryRow key={memory.id} memory={memory} onForget={() => forgetAt(memory.id, place)} />)}</ul>
      {cursor.value && <p class="buttons"><button type="button" onClick={() => void load("more")}>{s.memory.more}</button></p>}
    </section>
  );
}

function SearchInput({ inputRef }: { inputRef: { current: HTMLInputElement | null } }) {
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (text: string) => {
    searchText.value = text;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void load(), SEARCH_MS);
  };
  return <input ref={inputRef} type="search" aria-label={s.memory.search} placeholder={s.memory.search} maxLength={200} value={searchText.value} onInput={(event) => type(event.currentTarget.value)} />;
}

function AddForm() {
  const text = useSignal("");
  const submit = async () => {
    const entered = text.value.trim();
    // Keep text that was typed meanwhile.
    if (entered && (await add(entered)) && text.value.trim() === entered) text.value = "";
  };
  return (
    <form onSubmit={(event) => (event.preventDefault(), void submit())}>
      <input aria-label={s.memory.add} placeholder={s.memory.add} maxLength={TEXT_CHARS_MAX} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      <button type="submit" disabled={!text.value.trim()}>{s.memory.addIt}</button>
    </form>
  );
}

function MemoryRow({ memory, onForget }: { memory: MemoryItem; onForget: () => void }) {
  const editing = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    editing.value = false;
    requestAnimationFrame(() => button.current?.focus());
  };
  if (editing.value) return <li><EditForm memory={memory} close={close} /></li>;
  return (
    <li>
      <p class="words">{memory.text}</p>
      <p class="origin">
        <Origin memory={memory} />
        <span class="spacer" />
        <button ref={button} type="button" class="quiet" aria-label={`${s.edit}: ${memory.text}`} onClick={() => (editing.value = true)}>{s.edit}</button>
        <button type="button" class="quiet forget" aria-label={`${s.memory.forget}: ${memory.text}`} onClick={onForget}>{s.memory.forget}</button>
      </p>
    </li>
  );
}

/** Show where a memory comes from: a session, with a link, or the user. */
function Origin({ memory }: { memory: MemoryItem }) {
  const { session_id, made_at, changed_at, by } = memory;
  const createdText = date(made_at, now.value);
  const isChanged = changed_at > made_at;
  const changedText = isChanged && (by === "user" ? s.memory.changedByYou : s.memory.changed)(date(changed_at, now.value));
  if (!session_id) return <span>{s.memory.addedByYou(createdText)}{isChanged && s.memory.changed(date(changed_at, now.value))}</span>;
  const title = memory.title || (sessions.value.has(session_id) ? s.untitled : "");
  if (!title) return <span>{s.memory.fromDeleted(createdText)}{changedText}</span>;
  return <span><a class="from" href={`#${session_id}`}>{s.memory.from} <u>{title}</u>, {createdText}</a>{changedText}</span>;
}

function EditForm({ memory, close }: { memory: MemoryItem; close: () => void }) {
  const text = useSignal(memory.text);
  const textarea = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    textarea.current?.focus();
    textarea.current?.setSelectionRange(memory.text.length, memory.text.length);
  }, []);
  const save = async () => {
    const entered = text.value.trim();
    if (!entered) return;
    if (entered === memory.text || (await edit(memory.id, entered))) close();
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) void save();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <form class="fields" onSubmit={(event) => (event.preventDefault(), void save())}>
      <textarea ref={textarea} rows={2} aria-label={s.edit} maxLength={TEXT_CHARS_MAX} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} onKeyDown={handleKey} />
      <p class="buttons"><button type="submit" class="strong" disabled={!text.value.trim()}>{s.save}</button><button type="button" class="quiet" onClick={close}>{s.cancel}</button></p>
    </form>
  );
}
