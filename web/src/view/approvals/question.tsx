// What the assistant asks, above where one writes: with its choices as buttons; without any, what is written there
// answers it. What was asked and answered stays in the conversation as one line.

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../../core/transcript_types";
import type { Asked } from "../../core/protocol";
import { actions, type Answer } from "../app/actions";
import { giveBackAfter, isTyping, takeKeyboard } from "../app/focus";
import { s } from "../text/index";
import { argumentsOf, parsed, textOf } from "../transcript/tool_calls";

/** So many choices have a key of their own. */
const KEYS = 9;

export function QuestionCard({ entry, asked, more }: { entry: Entry; asked: Asked; more: number; version: number }) {
  const busy = useSignal(false);
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    takeKeyboard(asked.choices.length ? box.current : document.querySelector<HTMLElement>(".composer textarea"));
    return () => giveBackAfter(".asking");
  }, []);
  const answer = async (given: Answer) => {
    if (busy.value) return;
    busy.value = true;
    await actions.answer(entry.run_id ?? "", entry.id, given);
    busy.value = false;
  };
  const leave = <button type="button" class="quiet" disabled={busy.value} onClick={() => void answer({ decision: "deny" })}>{s.dontAnswer}</button>;
  return (
    <section class="asking question" aria-label={s.needsYou} role="region" tabIndex={-1} ref={box}>
      <h3 class="words">{asked.question} {more > 0 && <small>{s.moreWaiting(more)}</small>}</h3>
      {asked.choices.length
        ? <Choices asked={asked} busy={busy.value} leave={leave} send={(choices) => void answer({ decision: "answer", choices })} />
        : <p class="buttons"><span class="note quiet else">{s.answerBelow}</span><span class="spread" />{leave}</p>}
    </section>
  );
}

interface Ways {
  busy: boolean;
  leave: preact.ComponentChildren;
}

/** One of them answers at once; of several, as many as one likes, and then they are sent. */
function Choices({ asked: { choices, multiple }, busy, leave, send }: Ways & { asked: Asked; send: (chosen: string[]) => void }) {
  const picked = useSignal<ReadonlySet<string>>(new Set());
  const isChosen = choices.filter((choice) => picked.value.has(choice));
  const pick = (choice: string) => {
    if (!multiple) return send([choice]);
    const all = new Set(picked.value);
    if (!all.delete(choice)) all.add(choice);
    picked.value = all;
  };
  const sendAll = () => isChosen.length > 0 && send(isChosen);
  // The keys of a question go with it: before the next one is drawn.
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      const choice = /^[1-9]$/.test(event.key) ? choices[Number(event.key) - 1] : undefined;
      const isOnButton = event.target instanceof HTMLButtonElement;
      if (choice !== undefined) pick(choice);
      else if (event.key === "Enter" && multiple && !isOnButton) sendAll();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  });
  return (
    <>
      {multiple && <p class="note quiet">{s.chooseSeveral}</p>}
      <div class="offered" role="group" aria-label={s.choices}>
        {choices.map((choice, place) => (
          <button key={choice} type="button" class="choice" disabled={busy} {...(multiple ? { "aria-pressed": picked.value.has(choice) } : {})} onClick={() => pick(choice)}>
            {place < KEYS && <kbd>{place + 1}</kbd>} <span>{choice}</span>
          </button>
        ))}
      </div>
      <p class="buttons">
        {multiple && <button type="button" class="strong" disabled={busy || !isChosen.length} onClick={sendAll}>{s.answerWith(isChosen.length)}</button>}
        <span class="note quiet else">{s.sayElse}</span>
        <span class="spread" />
        {leave}
      </p>
    </>
  );
}

/** A question in the conversation, with what was said to it. */
export function AskedLine({ entry }: { entry: Entry; version: number }) {
  const question = entry.asked?.question ?? String(parsed(argumentsOf(entry))?.["question"] ?? "");
  const said = entry.outcome === "done" ? textOf(entry) : entry.outcome ? s.notAnswered : s.waitsForAnswer;
  return (
    <div class={`tool exchange ${entry.outcome ?? ""}`} id={entry.id}>
      <p class="words"><span class="unseen">{s.wasAsked} </span>{question}</p>
      <p class={entry.outcome === "done" ? "words" : "words note quiet"}><span class="unseen">{s.wasAnswered} </span>{said}</p>
    </div>
  );
}
