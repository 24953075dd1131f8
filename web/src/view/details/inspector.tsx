// Beside the conversation: more about what is looked at. It is drawn again when something happens, not with every
// word that is written; while it is closed none of this is there.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { giveBack } from "../app/focus";
import { open, shape } from "../app/store";
import { s } from "../text/index";
import { AnswerView } from "./answer_details";
import { CallView } from "./call_details";
import { beside, pick, picked, roomy } from "./store";
import { WholeView } from "./session_details";

const PICKABLE = ".transcript .tool[id], .transcript article[id]";
const LOOKED_AT = "data-looked-at";

export function Inspector() {
  const box = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const drawn = shape.value;
  const entry = open.conversation.entry(picked.value);
  const turn = entry && open.conversation.turns.get(entry.turn);
  useKeyboard(body);
  useEffect(pickByPress, []);
  useLayoutEffect(() => staysOff(box.current), []);
  useLayoutEffect(() => void (body.current && (body.current.scrollTop = 0)), [entry?.id]);
  useEffect(() => showLookedAt(entry?.id ?? ""), [entry?.id, drawn]);
  const isCall = entry?.role === "tool";
  const answer = turn?.entries.find((each) => each.role !== "tool");
  return (
    <aside class="inspector" aria-label={s.details.title} ref={box}>
      <header>
        <nav aria-label={s.details.way}>
          {!entry && <h2>{s.details.conversation}</h2>}
          {entry && <button type="button" class="quiet" onClick={() => pick("")}>‹ {s.details.conversation}</button>}
          {isCall && answer && <button type="button" class="quiet" onClick={() => pick(answer.id)}>‹ {s.details.answer}</button>}
        </nav>
        <button type="button" class="quiet" aria-label={s.close} onClick={() => beside(false)}>×</button>
      </header>
      <div class="about" ref={body} tabIndex={0} role="group" aria-label={isCall ? s.details.steps : entry ? s.details.answer : s.details.conversation}>
        {isCall ? <CallView key={entry.id} id={entry.id} /> : turn ? <AnswerView key={turn.turn} turn={turn} /> : <WholeView />}
        {!entry && <p class="note quiet hint">{s.details.pickHint}</p>}
      </div>
    </aside>
  );
}

/** What lies over the conversation takes the keyboard, and gives it back. */
function useKeyboard(body: { current: HTMLElement | null }): void {
  useEffect(() => {
    if (roomy.matches) return;
    const before = document.activeElement;
    body.current?.focus({ preventScroll: true });
    return () => giveBack(before);
  }, []);
}

/** Whatever is pressed in the conversation is looked at; pressing to select words is something else. */
function pickByPress(): () => void {
  const press = (event: MouseEvent) => {
    const node = event.target instanceof Element ? event.target.closest(PICKABLE) : null;
    if (node && getSelection()?.isCollapsed !== false && open.conversation.entry(node.id)) pick(node.id);
  };
  document.addEventListener("click", press);
  return () => document.removeEventListener("click", press);
}

/** Where it lies over the conversation it leaves free what is asked, and where one writes. */
function staysOff(box: HTMLElement | null): (() => void) | undefined {
  const frame = document.querySelector(".transcript-frame");
  if (!box || !frame) return undefined;
  const watch = new ResizeObserver(() => {
    const { top, bottom } = frame.getBoundingClientRect();
    box.style.setProperty("--over", `${top}px`);
    box.style.setProperty("--under", `${innerHeight - bottom}px`);
  });
  watch.observe(frame);
  return () => watch.disconnect();
}

function showLookedAt(id: string): () => void {
  const node = id ? document.getElementById(id) : null;
  node?.setAttribute(LOOKED_AT, "");
  return () => node?.removeAttribute(LOOKED_AT);
}
