// A question to the owner, above the composer and never in the way: what is to run, where, why, and what is at risk.

import { computed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { divide, isDue } from "../../core/approval_reason";
import type { Entry } from "../../core/transcript_types";
import { actions, type Answer } from "../app/actions";
import { giveBackAfter, isTyping, takeKeyboard } from "../app/focus";
import { QuestionCard } from "./question";
import { current, open, panel, questions, say, tick } from "../app/store";
import { s } from "../text/index";
import { Arguments, argumentsOf, inBrief, parsed } from "../transcript/tool_calls";

/** The question that what is written answers: the first of what is asked, where it leaves the answer to words. */
export const asksForWords = computed(() => {
  void tick.value;
  const [first] = open.conversation.asked();
  return first?.asked && !first.asked.choices.length ? first : null;
});

export function Asking() {
  void tick.value;
  const entries = open.conversation.asked();
  const [first] = entries;
  if (!first) return null;
  const more = entries.length - 1;
  if (first.asked) return <QuestionCard key={first.id} entry={first} asked={first.asked} version={first.version} more={more} />;
  return <Question key={first.id} entry={first} version={first.version} more={more} />;
}

function Question({ entry, more }: { entry: Entry; more: number; version: number }) {
  const mode = useSignal<"" | "edit" | "deny">("");
  const busy = useSignal(false);
  const box = useRef<HTMLElement>(null);
  const written = argumentsOf(entry);
  // Whoever is not writing can answer with one key.
  useEffect(() => {
    takeKeyboard(box.current);
    return () => giveBackAfter(".asking");
  }, []);
  const done = () => {
    mode.value = "";
    box.current?.focus({ preventScroll: true });
  };
  const told = questions.value.get(current.value ?? "")?.find((each) => each.call_id === entry.id);
  const { folder, own, caution } = divide(entry.reason || told?.reason || "", told?.workspace ?? "");
  const answer = async (given: Answer) => {
    if (busy.value) return;
    busy.value = true;
    const isThere = await actions.answer(entry.run_id ?? "", entry.id, given);
    busy.value = false;
    if (isThere && (given.scope === "always" || given.scope === "session")) sayAllowed(written, entry.name, given.scope);
  };
  // The keys of a question go with it: before the next one is drawn.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.key === "a") void answer({ decision: "approve" });
      else if (event.key === "e") mode.value = "edit";
      else if (event.key === "d") mode.value = "deny";
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return (
    <section class="asking" aria-label={s.needsYou} role="region" tabIndex={-1} ref={box}>
      <h3>{s.asks(entry.name, inBrief(written))} {more > 0 && <small>{s.moreWaiting(more)}</small>}</h3>
      {mode.value === "edit" ? <Edit written={written} name={entry.name} done={done} send={(edited) => answer({ decision: "approve", arguments: edited })} /> : <Command written={written} name={entry.name} />}
      {folder && <p class="note quiet" title={folder}>{folder.endsWith(`/${current.value}`) ? s.ownFolder : s.inFolder(folder)}</p>}
      {own && <p class="note risk">{own}</p>}
      {caution && isDue(caution, entry.id, new Date().toDateString(), localStorage) && <p class="note risk">{caution}</p>}
      {mode.value === "deny" && <Deny done={done} send={(why) => answer({ decision: "deny", ...(why ? { reason: why } : {}) })} />}
      {mode.value === "" && (
        <p class="buttons">
          <button type="button" class="strong" disabled={busy.value} onClick={() => void answer({ decision: "approve" })}>{s.allowOnce} <kbd>A</kbd></button>
          <button type="button" disabled={busy.value} onClick={() => (mode.value = "edit")}>{s.editFirst} <kbd>E</kbd></button>
          <button type="button" disabled={busy.value} onClick={() => (mode.value = "deny")}>{s.deny} <kbd>D</kbd></button>
          <span class="spread" />
          {!canLast(written, entry.name) ? <span class="note quiet else">{s.onceOnly}</span> : (
            <span class="buttons">
              <button type="button" class="quiet" disabled={busy.value} title={covers(entry.name)} onClick={() => void answer({ decision: "approve", scope: "session" })}>{s.allowHere}</button>
              <button type="button" class="quiet" disabled={busy.value} title={covers(entry.name)} onClick={() => void answer({ decision: "approve", scope: "always" })}>{s.allowAlways}</button>
            </span>
          )}
        </p>
      )}
      {mode.value === "" && <p class="note quiet else">{s.sayElseRefuses}</p>}
    </section>
  );
}

/** Whether a lasting yes can be given: to one plain command it can. The server has the last word. */
function canLast(written: string, name: string): boolean {
  const command = parsed(written)?.["command"];
  return name !== "shell" || (typeof command === "string" && !/[;&|<>$`*?{}~()!#\n\\]/.test(command));
}

/** What is not asked from now on, and where that is taken back. */
function sayAllowed(written: string, name: string, scope: "always" | "session"): void {
  const command = name === "shell" ? parsed(written)?.["command"] : null;
  const what = typeof command === "string" ? command : s.everyUse(name);
  say(s.allowedNow(what, scope === "always"), { text: s.settings, run: () => (panel.value = "settings") });
}

/** What a lasting yes reaches. */
function covers(name: string): string {
  return name === "shell" ? s.coversCommand : s.coversTool(name);
}

function Command({ written, name }: { written: string; name: string }) {
  const command = name === "shell" ? parsed(written)?.["command"] : null;
  return typeof command === "string" ? <pre class="command" tabIndex={0}>{command}</pre> : <Arguments written={written} name={name} />;
}

/** A command is edited as one writes it, everything else as it is sent. */
function Edit({ written, name, done, send }: { written: string; name: string; done: () => void; send: (edited: string) => void }) {
  const found = parsed(written);
  const isCommand = name === "shell" && typeof found?.["command"] === "string";
  const text = useSignal(isCommand ? String(found["command"]) : JSON.stringify(found ?? written, null, 2));
  const submit = () => send(isCommand ? JSON.stringify({ ...found, command: text.value }) : text.value);
  return (
    <form onSubmit={(event) => (event.preventDefault(), submit())}>
      <textarea class="command" aria-label={s.editFirst} rows={Math.min(10, text.value.split("\n").length + 1)} value={text.value}
        ref={(node) => { if (node && document.activeElement !== node) node.focus(); }}
        onInput={(event) => (text.value = event.currentTarget.value)} onKeyDown={closing(done)} />
      <p class="buttons"><button type="submit" class="strong">{s.allow}</button><button type="button" class="quiet" onClick={done}>{s.cancel}</button></p>
    </form>
  );
}

function Deny({ done, send }: { done: () => void; send: (why: string) => void }) {
  const why = useSignal("");
  return (
    <form onSubmit={(event) => (event.preventDefault(), send(why.value.trim()))}>
      <input aria-label={s.denyWhy} placeholder={s.denyWhy} value={why.value} ref={(node) => { if (node && document.activeElement !== node) node.focus(); }}
        onInput={(event) => (why.value = event.currentTarget.value)} onKeyDown={closing(done)} />
      <p class="buttons"><button type="submit">{s.deny}</button><button type="button" class="quiet" onClick={done}>{s.cancel}</button></p>
    </form>
  );
}

/** Escape closes what is open here, and nothing else. */
function closing(done: () => void): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    done();
  };
}
