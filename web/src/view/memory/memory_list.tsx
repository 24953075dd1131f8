// All that is known: found by words, changed in its place, forgotten, added by hand.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Memory } from "../../core/protocol";
import { date } from "../../core/format_time";
import { now, sessions } from "../app/store";
import { s } from "../text/index";
import { about, add, cursor, edit, forget, load, problem, shown, words } from "./store";

const SEARCH_MS = 150;
const TEXT_CHARS_MAX = 2_000;

export function Known() {
  const isOff = about.value?.provider === "off";
  const list = useRef<HTMLUListElement>(null);
  const box = useRef<HTMLInputElement>(null);
  /** Whoever has forgotten one goes on with the next, also by keyboard. */
  const forgot = (id: string, place: number) => {
    forget(id);
    requestAnimationFrame(() => {
      const next = list.current?.children[Math.min(place, shown.value.length - 1)];
      (next?.querySelector<HTMLElement>(".forget") ?? box.current)?.focus();
    });
  };
  const isAsked = Boolean(words.value.trim());
  // What cannot be shown is not said to be empty, nor to be searched or added to.
  const isShown = !problem.value && about.value?.shows === true;
  const canBeEmpty = isShown && !isOff && (about.value?.health.ok === true || isAsked);
  if (!shown.value.length && !canBeEmpty) return null;
  return (
    <section aria-labelledby="memory-known">
      <h3 id="memory-known">{s.memory.known}</h3>
      {isShown && (
        <div class="memory-tools">
          <Search box={box} />
          {!isOff && <Add />}
        </div>
      )}
      {!shown.value.length && (isAsked ? <p class="note quiet" role="status">{s.noneFound}</p> : <div class="none"><p>{s.memory.none}</p><p class="note quiet">{s.memory.noneMore}</p></div>)}
      <ul class="memories" ref={list}>{shown.value.map((memory, place) => <One key={memory.id} memory={memory} forgot={() => forgot(memory.id, place)} />)}</ul>
      {cursor.value && <p class="buttons"><button type="button" onClick={() => void load("more")}>{s.memory.more}</button></p>}
    </section>
  );
}

function Search({ box }: { box: { current: HTMLInputElement | null } }) {
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (text: string) => {
    words.value = text;
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => void load(), SEARCH_MS);
  };
  return <input ref={box} type="search" aria-label={s.memory.search} placeholder={s.memory.search} maxLength={200} value={words.value} onInput={(event) => type(event.currentTarget.value)} />;
}

function Add() {
  const text = useSignal("");
  const submit = async () => {
    const given = text.value.trim();
    // What was typed meanwhile stays.
    if (given && (await add(given)) && text.value.trim() === given) text.value = "";
  };
  return (
    <form onSubmit={(event) => (event.preventDefault(), void submit())}>
      <input aria-label={s.memory.add} placeholder={s.memory.add} maxLength={TEXT_CHARS_MAX} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
      <button type="submit" disabled={!text.value.trim()}>{s.memory.addIt}</button>
    </form>
  );
}

function One({ memory, forgot }: { memory: Memory; forgot: () => void }) {
  const editing = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    editing.value = false;
    requestAnimationFrame(() => button.current?.focus());
  };
  if (editing.value) return <li><Edit memory={memory} close={close} /></li>;
  return (
    <li>
      <p class="words">{memory.text}</p>
      <p class="origin">
        <Origin memory={memory} />
        <span class="spread" />
        <button ref={button} type="button" class="quiet" aria-label={`${s.edit}: ${memory.text}`} onClick={() => (editing.value = true)}>{s.edit}</button>
        <button type="button" class="quiet forget" aria-label={`${s.memory.forget}: ${memory.text}`} onClick={forgot}>{s.memory.forget}</button>
      </p>
    </li>
  );
}

/** Where it comes from: a conversation, with the way there, or a person's own hand. */
function Origin({ memory }: { memory: Memory }) {
  const { session_id, made_at, changed_at, by } = memory;
  const made = date(made_at, now.value);
  const isChanged = changed_at > made_at;
  const changed = isChanged && (by === "user" ? s.memory.changedByYou : s.memory.changed)(date(changed_at, now.value));
  if (!session_id) return <span>{s.memory.byYou(made)}{isChanged && s.memory.changed(date(changed_at, now.value))}</span>;
  const title = memory.title || (sessions.value.has(session_id) ? s.untitled : "");
  if (!title) return <span>{s.memory.fromGone(made)}{changed}</span>;
  return <span><a class="from" href={`#${session_id}`}>{s.memory.from} <u>{title}</u>, {made}</a>{changed}</span>;
}

function Edit({ memory, close }: { memory: Memory; close: () => void }) {
  const text = useSignal(memory.text);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(memory.text.length, memory.text.length);
  }, []);
  const save = async () => {
    const given = text.value.trim();
    if (!given) return;
    if (given === memory.text || (await edit(memory.id, given))) close();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) void save();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <form class="fields" onSubmit={(event) => (event.preventDefault(), void save())}>
      <textarea ref={area} rows={2} aria-label={s.edit} maxLength={TEXT_CHARS_MAX} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} onKeyDown={press} />
      <p class="buttons"><button type="submit" class="strong" disabled={!text.value.trim()}>{s.save}</button><button type="button" class="quiet" onClick={close}>{s.cancel}</button></p>
    </form>
  );
}
