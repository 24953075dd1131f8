// On a phone a finger brings the list and the details, and sends them away again. What scrolls sideways, what is
// written in and what is being selected keeps its own meaning of it.

import { shownAfter, wayOf, type Shown, type Touch } from "../../core/swipe";
import { beside, hasDetails, isBeside, small } from "../details/store";
import { isTyping } from "./focus";
import { panel } from "./store";

function scrollsAcross(target: EventTarget | null): boolean {
  for (let node = target instanceof Element ? target : null; node; node = node.parentElement) {
    if (node.scrollWidth > node.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(node).overflowX)) return true;
  }
  return false;
}

const isSelecting = () => getSelection()?.isCollapsed === false;
const isEnlarged = () => (visualViewport?.scale ?? 1) > 1.01;

function shown(): Shown {
  return panel.value === "list" ? "list" : isBeside.value ? "details" : "conversation";
}

function show(next: Shown): void {
  panel.value = next === "list" ? "list" : "";
  if (isBeside.value || next === "details") beside(next === "details");
}

/** Take notice of fingers until what is returned is called. */
export function swiping(): () => void {
  let from: Touch | null = null;
  const touched = ({ changedTouches: [touch], timeStamp: ms }: TouchEvent): Touch | null => touch ? { x: touch.clientX, y: touch.clientY, ms } : null;
  const begin = (event: TouchEvent) => {
    const isOurs = small.matches && (!panel.value || panel.value === "list") && event.touches.length === 1;
    const isTheirs = isTyping(event.target) || isSelecting() || isEnlarged() || scrollsAcross(event.target);
    from = isOurs && !isTheirs ? touched(event) : null;
  };
  const end = (event: TouchEvent) => {
    const to = touched(event);
    const way = from && to && !isSelecting() ? wayOf(from, to, innerWidth) : "";
    from = null;
    const next = shownAfter(shown(), way, hasDetails.value);
    if (next !== shown()) show(next);
  };
  const forget = () => (from = null);
  addEventListener("touchstart", begin, { passive: true });
  addEventListener("touchend", end, { passive: true });
  addEventListener("touchcancel", forget, { passive: true });
  return () => {
    removeEventListener("touchstart", begin);
    removeEventListener("touchend", end);
    removeEventListener("touchcancel", forget);
  };
}
