// A question of the assistant, above the composer: with its choices as buttons, or answered in the composer. An
// answered question stays in the transcript.

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../../core/transcript_types";
import type { AgentQuestion } from "../../core/protocol";
import { actions, type Answer } from "../app/actions";
import { restoreFocusAfterRemoval, isTyping, focusUnlessTyping } from "../app/focus";
import { s } from "../text/index";
import { callArguments, parseArguments, textOf } from "../transcript/tool_calls";

/** How many choices have a shortcut key. */
const SHORTCUTS_MAX = 9;

export function QuestionCard({ entry, question, more }: { entry: Entry; question: AgentQuestion; more: number; version: number }) {
  const busy = useSignal(false);
  const container = useRef<HTMLElement>(null);
  useEffect(() => {
    focusUnlessTyping(question.choices.length ? container.current : document.querySelector<HTMLElement>(".composer textarea"));
    return () => restoreFocusAfterRemoval(".waiting-call");
  }, []);
  const answer = async (reply: Answer) => {
    if (busy.value) return;
    busy.value = true;
    await actions.answer(entry.run_id ?? "", entry.id, reply);
    busy.value = false;
  };
  const declineButton = <button type="button" class="quiet" disabled={busy.value} onClick={() => void answer({ decision: "deny" })}>{s.dontAnswer}</button>;
  return (
    <section class="waiting-call question" aria-label={s.needsYou} role="region" tabIndex={-1} ref={container}>
      <h3 class="words">{question.question} {more > 0 && <small>{s.moreWaiting(more)}</small>}</h3>
      {question.choices.length
        ? <ChoiceButtons asked={question} busy={busy.value} declineButton={declineButton} send={(choices) => void answer({ decision: "answer", choices })} />
        : <p class="buttons"><span class="note quiet small">{s.answerBelow}</span><span class="spacer" />{declineButton}</p>}
    </section>
  );
}

interface ChoiceProps {
  busy: boolean;
  declineButton: preact.ComponentChildren;
}

/** Send a single choice at once; collect multiple choices and then send them. */
function ChoiceButtons({ asked: { choices, multiple }, busy, declineButton, send }: ChoiceProps & { asked: AgentQuestion; send: (chosen: string[]) => void }) {
  const selected = useSignal<ReadonlySet<string>>(new Set());
  const chosen = choices.filter((choice) => selected.value.has(choice));
  const select = (choice: string) => {
    if (!multiple) return send([choice]);
    const all = new Set(selected.value);
    if (!all.delete(choice)) all.add(choice);
    selected.value = all;
  };
  const sendAll = () => chosen.length > 0 && send(chosen);
  // A layout effect, so that the keys belong to this question before the next one is rendered.
  useLayoutEffect(() => {
    const handleKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const choice = /^[1-9]$/.test(event.key) ? choices[Number(event.key) - 1] : undefined;
      const isOnButton = event.target instanceof HTMLButtonElement;
      if (choice !== undefined) select(choice);
      else if (event.key === "Enter" && multiple && !isOnButton) sendAll();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  });
  return (
    <>
      {multiple && <p class="note quiet">{s.chooseSeveral}</p>}
      <div class="choice-list" role="group" aria-label={s.choices}>
        {choices.map((choice, index) => (
          <button key={choice} type="button" class="choice" disabled={busy} {...(multiple ? { "aria-pressed": selected.value.has(choice) } : {})} onClick={() => select(choice)}>
            {index < SHORTCUTS_MAX && <kbd>{index + 1}</kbd>} <span>{choice}</span>
          </button>
        ))}
      </div>
      <p class="buttons">
        {multiple && <button type="button" class="strong" disabled={busy || !chosen.length} onClick={sendAll}>{s.answerWith(chosen.length)}</button>}
        <span class="note quiet small">{s.messageInstead}</span>
        <span class="spacer" />
        {declineButton}
      </p>
    </>
  );
}

/** Show a question and its answer in the transcript. */
export function AnsweredQuestion({ entry }: { entry: Entry; version: number }) {
  const question = entry.asked?.question ?? String(parseArguments(callArguments(entry))?.["question"] ?? "");
  const answer = entry.outcome === "done" ? textOf(entry) : entry.outcome ? s.notAnswered : s.waitsForAnswer;
  return (
    <div class={`tool answered-question ${entry.outcome ?? ""}`} id={entry.id}>
      <p class="words"><span class="visually-hidden">{s.questionLabel} </span>{question}</p>
      <p class={entry.outcome === "done" ? "words" : "words note quiet"}><span class="visually-hidden">{s.answerLabel} </span>{answer}</p>
    </div>
  );
}
