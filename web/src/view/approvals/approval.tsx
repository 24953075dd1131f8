// A call that waits for approval, above the composer: what is to run, where, why, and the risks.

import { computed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { parseReason, isWarningDue } from "../../core/approval_reason";
import type { Entry } from "../../core/transcript_types";
import { actions, type Answer } from "../app/actions";
import { restoreFocusAfterRemoval, isTyping, focusUnlessTyping } from "../app/focus";
import { QuestionCard } from "./question";
import { current, active, panel, questions, showNotice, tick } from "../app/store";
import { s } from "../text/index";
import { Arguments, callArguments, argumentsSummary, parseArguments } from "../transcript/tool_calls";

/** The question that the composer's text answers: the first waiting call, if it is a question without choices. */
export const textQuestion = computed(() => {
  void tick.value;
  const [first] = active.conversation.waitingCalls();
  return first?.asked && !first.asked.choices.length ? first : null;
});

export function WaitingCall() {
  void tick.value;
  const entries = active.conversation.waitingCalls();
  const [first] = entries;
  if (!first) return null;
  const more = entries.length - 1;
  if (first.asked) return <QuestionCard key={first.id} entry={first} question={first.asked} version={first.version} more={more} />;
  return <ApprovalCard key={first.id} entry={first} version={first.version} more={more} />;
}

function ApprovalCard({ entry, more }: { entry: Entry; more: number; version: number }) {
  const mode = useSignal<"" | "edit" | "deny">("");
  const busy = useSignal(false);
  const container = useRef<HTMLElement>(null);
  const argumentsJson = callArguments(entry);
  // Take the focus unless the user is typing, so that one key answers.
  useEffect(() => {
    focusUnlessTyping(container.current);
    return () => restoreFocusAfterRemoval(".waiting-call");
  }, []);
  const closeForm = () => {
    mode.value = "";
    container.current?.focus({ preventScroll: true });
  };
  const question = questions.value.get(current.value ?? "")?.find((each) => each.call_id === entry.id);
  const { folder, detail, warning } = parseReason(entry.reason || question?.reason || "", question?.workspace ?? "");
  const answer = async (reply: Answer) => {
    if (busy.value) return;
    busy.value = true;
    const isAccepted = await actions.answer(entry.run_id ?? "", entry.id, reply);
    busy.value = false;
    if (isAccepted && (reply.scope === "always" || reply.scope === "session")) showAllowed(argumentsJson, entry.name, reply.scope);
  };
  // A layout effect, so that the keys belong to this call before the next one is rendered.
  useLayoutEffect(() => {
    const handleKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (event.key === "a") void answer({ decision: "approve" });
      else if (event.key === "e") mode.value = "edit";
      else if (event.key === "d") mode.value = "deny";
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  }, []);
  return (
    <section class="waiting-call" aria-label={s.needsYou} role="region" tabIndex={-1} ref={container}>
      <h3>{s.asks(entry.name, argumentsSummary(argumentsJson))} {more > 0 && <small>{s.moreWaiting(more)}</small>}</h3>
      {mode.value === "edit" ? <EditForm argumentsJson={argumentsJson} name={entry.name} close={closeForm} send={(edited) => answer({ decision: "approve", arguments: edited })} /> : <Command argumentsJson={argumentsJson} name={entry.name} />}
      {folder && <p class="note quiet" title={folder}>{folder.endsWith(`/${current.value}`) ? s.ownFolder : s.inFolder(folder)}</p>}
      {detail && <p class="note risk">{detail}</p>}
      {warning && isWarningDue(warning, entry.id, new Date().toDateString(), localStorage) && <p class="note risk">{warning}</p>}
      {mode.value === "deny" && <DenyForm close={closeForm} send={(why) => answer({ decision: "deny", ...(why ? { reason: why } : {}) })} />}
      {mode.value === "" && (
        <p class="buttons">
          <button type="button" class="strong" disabled={busy.value} onClick={() => void answer({ decision: "approve" })}>{s.allowOnce} <kbd>A</kbd></button>
          <button type="button" disabled={busy.value} onClick={() => (mode.value = "edit")}>{s.editFirst} <kbd>E</kbd></button>
          <button type="button" disabled={busy.value} onClick={() => (mode.value = "deny")}>{s.deny} <kbd>D</kbd></button>
          <span class="spacer" />
          {!canAllowPermanently(argumentsJson, entry.name) ? <span class="note quiet small">{s.onceOnly}</span> : (
            <span class="buttons">
              <button type="button" class="quiet" disabled={busy.value} title={scopeText(entry.name)} onClick={() => void answer({ decision: "approve", scope: "session" })}>{s.allowHere}</button>
              <button type="button" class="quiet" disabled={busy.value} title={scopeText(entry.name)} onClick={() => void answer({ decision: "approve", scope: "always" })}>{s.allowAlways}</button>
            </span>
          )}
        </p>
      )}
      {mode.value === "" && <p class="note quiet small">{s.messageDeclines}</p>}
    </section>
  );
}

/** Return whether the call can be allowed permanently: one plain command can. The server decides. */
function canAllowPermanently(argumentsJson: string, name: string): boolean {
  const command = parseArguments(argumentsJson)?.["command"];
  return name !== "shell" || (typeof command === "string" && !/[;&|<>$`*?{}~()!#\n\\]/.test(command));
}

/** Show what was allowed permanently, and where to revoke it. */
function showAllowed(argumentsJson: string, name: string, scope: "always" | "session"): void {
  const command = name === "shell" ? parseArguments(argumentsJson)?.["command"] : null;
  const what = typeof command === "string" ? command : s.everyUse(name);
  showNotice(s.allowedNow(what, scope === "always"), { text: s.settings, run: () => (panel.value = "settings") });
}

/** Return what a permanent permission covers. */
function scopeText(name: string): string {
  return name === "shell" ? s.coversCommand : s.coversTool(name);
}

function Command({ argumentsJson, name }: { argumentsJson: string; name: string }) {
  const command = name === "shell" ? parseArguments(argumentsJson)?.["command"] : null;
  return typeof command === "string" ? <pre class="command" tabIndex={0}>{command}</pre> : <Arguments json={argumentsJson} name={name} />;
}

/** Edit a command as plain text, other arguments as JSON. */
function EditForm({ argumentsJson, name, close, send }: { argumentsJson: string; name: string; close: () => void; send: (edited: string) => void }) {
  const parsedArguments = parseArguments(argumentsJson);
  const isCommand = name === "shell" && typeof parsedArguments?.["command"] === "string";
  const text = useSignal(isCommand ? String(parsedArguments["command"]) : JSON.stringify(parsedArguments ?? argumentsJson, null, 2));
  const submit = () => send(isCommand ? JSON.stringify({ ...parsedArguments, command: text.value }) : text.value);
  return (
    <form onSubmit={(event) => (event.preventDefault(), submit())}>
      <textarea class="command" aria-label={s.editFirst} rows={Math.min(10, text.value.split("\n").length + 1)} value={text.value}
        ref={(node) => { if (node && document.activeElement !== node) node.focus(); }}
        onInput={(event) => (text.value = event.currentTarget.value)} onKeyDown={closeOnEscape(close)} />
      <p class="buttons"><button type="submit" class="strong">{s.allow}</button><button type="button" class="quiet" onClick={close}>{s.cancel}</button></p>
    </form>
  );
}

function DenyForm({ close, send }: { close: () => void; send: (why: string) => void }) {
  const why = useSignal("");
  return (
    <form onSubmit={(event) => (event.preventDefault(), send(why.value.trim()))}>
      <input aria-label={s.denyWhy} placeholder={s.denyWhy} value={why.value} ref={(node) => { if (node && document.activeElement !== node) node.focus(); }}
        onInput={(event) => (why.value = event.currentTarget.value)} onKeyDown={closeOnEscape(close)} />
      <p class="buttons"><button type="submit">{s.deny}</button><button type="button" class="quiet" onClick={close}>{s.cancel}</button></p>
    </form>
  );
}

/** Close the form on Escape, and keep the key from other handlers. */
function closeOnEscape(close: () => void): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  };
}
