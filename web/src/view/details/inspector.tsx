// The details panel. It renders with every event except appended text.

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { restoreFocus } from "../app/focus";
import { active, structureVersion } from "../app/store";
import { s } from "../text/index";
import { AnswerDetails } from "./answer_details";
import { CallDetails } from "./call_details";
import { showDetails, selectEntry, selectedId, wideScreen } from "./store";
import { SessionDetails } from "./session_details";

const SELECTABLE = ".transcript .tool[id], .transcript article[id]";
const SELECTED_ATTRIBUTE = "data-looked-at";

export function Inspector() {
  const container = useRef<HTMLElement>(null);
  const body = useRef<HTMLDivElement>(null);
  const drawn = structureVersion.value;
  const entry = active.conversation.entry(selectedId.value);
  const turn = entry && active.conversation.turns.get(entry.turn);
  useOverlayFocus(body);
  useEffect(selectOnClick, []);
  useLayoutEffect(() => fitToTranscript(container.current), []);
  useLayoutEffect(() => void (body.current && (body.current.scrollTop = 0)), [entry?.id]);
  useEffect(() => markSelected(entry?.id ?? ""), [entry?.id, drawn]);
  const isCall = entry?.role === "tool";
  const answer = turn?.entries.find((each) => each.role !== "tool");
  return (
    <aside class="inspector" aria-label={s.details.title} ref={container}>
      <header>
        <nav aria-label={s.details.navigation}>
          {!entry && <h2>{s.details.conversation}</h2>}
          {entry && <button type="button" class="quiet" onClick={() => selectEntry("")}>‹ {s.details.conversation}</button>}
          {isCall && answer && <button type="button" class="quiet" onClick={() => selectEntry(answer.id)}>‹ {s.details.answer}</button>}
        </nav>
        <button type="button" class="quiet" aria-label={s.close} onClick={() => showDetails(false)}>×</button>
      </header>
      <div class="about" ref={body} tabIndex={0} role="group" aria-label={isCall ? s.details.steps : entry ? s.details.answer : s.details.conversation}>
        {isCall ? <CallDetails key={entry.id} id={entry.id} /> : turn ? <AnswerDetails key={turn.turn} turn={turn} /> : <SessionDetails />}
        {!entry && <p class="note quiet hint">{s.details.pickHint}</p>}
      </div>
    </aside>
  );
}

/** Focus an overlay when it opens, and restore the focus when it closes. */
function useOverlayFocus(body: { current: HTMLElement | null }): void {
  useEffect(() => {
    if (wideScreen.matches) return;
    const before = document.activeElement;
    body.current?.focus({ preventScroll: true });
    return () => restoreFocus(before);
  }, []);
}

/** Select what is clicked in the transcript, unless the click selects text. */
function selectOnClick(): () => void {
  const handleClick = (event: MouseEvent) => {
    const node = event.target instanceof Element ? event.target.closest(SELECTABLE) : null;
    if (node && getSelection()?.isCollapsed !== false && active.conversation.entry(node.id)) selectEntry(node.id);
  };
  document.addEventListener("click", handleClick);
  return () => document.removeEventListener("click", handleClick);
}

/** Limit an overlay to the height of the transcript, so that waiting calls and the composer stay usable. */
function fitToTranscript(container: HTMLElement | null): (() => void) | undefined {
  const frame = document.querySelector(".transcript-frame");
  if (!container || !frame) return undefined;
  const watch = new ResizeObserver(() => {
    const { top, bottom } = frame.getBoundingClientRect();
    container.style.setProperty("--over", `${top}px`);
    container.style.setProperty("--under", `${innerHeight - bottom}px`);
  });
  watch.observe(frame);
  return () => watch.disconnect();
}

function markSelected(id: string): () => void {
  const node = id ? document.getElementById(id) : null;
  node?.setAttribute(SELECTED_ATTRIBUTE, "");
  return () => node?.removeAttribute(SELECTED_ATTRIBUTE);
}
