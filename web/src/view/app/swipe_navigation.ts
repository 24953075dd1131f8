// On a phone, swipes show and hide the list and the details. Horizontal scrolling, typing and selecting keep their
// own meaning.

import { paneAfterSwipe, swipeDirection, type Pane, type TouchPoint } from "../../core/swipe";
import { showDetails, hasDetails, isDetailsOpen, smallScreen } from "../details/store";
import { isTyping } from "./focus";
import { panel } from "./store";

function scrollsHorizontally(target: EventTarget | null): boolean {
  for (let node = target instanceof Element ? target : null; node; node = node.parentElement) {
    if (node.scrollWidth > node.clientWidth + 1 && /auto|scroll/.test(getComputedStyle(node).overflowX)) return true;
  }
  return false;
}

const isSelecting = () => getSelection()?.isCollapsed === false;
const isZoomed = () => (visualViewport?.scale ?? 1) > 1.01;

function currentPane(): Pane {
  return panel.value === "list" ? "list" : isDetailsOpen.value ? "details" : "conversation";
}

function showPane(pane: Pane): void {
  panel.value = pane === "list" ? "list" : "";
  if (isDetailsOpen.value || pane === "details") showDetails(pane === "details");
}

/** Listen for swipes until the returned function is called. */
export function enableSwipes(): () => void {
  let from: TouchPoint | null = null;
  const toPoint = ({ changedTouches: [touch], timeStamp: ms }: TouchEvent): TouchPoint | null => touch ? { x: touch.clientX, y: touch.clientY, ms } : null;
  const begin = (event: TouchEvent) => {
    const isSwipeable = smallScreen.matches && (!panel.value || panel.value === "list") && event.touches.length === 1;
    const isOtherGesture = isTyping(event.target) || isSelecting() || isZoomed() || scrollsHorizontally(event.target);
    from = isSwipeable && !isOtherGesture ? toPoint(event) : null;
  };
  const end = (event: TouchEvent) => {
    const to = toPoint(event);
    const direction = from && to && !isSelecting() ? swipeDirection(from, to, innerWidth) : "";
    from = null;
    const pane = paneAfterSwipe(currentPane(), direction, hasDetails.value);
    if (pane !== currentPane()) showPane(pane);
  };
  const cancel = () => (from = null);
  addEventListener("touchstart", begin, { passive: true });
  addEventListener("touchend", end, { passive: true });
  addEventListener("touchcancel", cancel, { passive: true });
  return () => {
    removeEventListener("touchstart", begin);
    removeEventListener("touchend", end);
    removeEventListener("touchcancel", cancel);
  };
}
