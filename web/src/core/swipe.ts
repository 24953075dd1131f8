// Interpret swipes on a small screen: the list is left of a conversation, its details are right.

/** A touch position and its time. */
export interface TouchPoint {
  readonly x: number;
  readonly y: number;
  readonly ms: number;
}

export type SwipeDirection = "left" | "right" | "";
export type Pane = "list" | "conversation" | "details";

const DISTANCE_PX_MIN = 56;
const DURATION_MS_MAX = 700;
/** A swipe that moves further vertically is a scroll. */
const HORIZONTAL_RATIO_MIN = 2;
/** A swipe from the very edge is the browser's: back and forward. */
const EDGE_PX = 16;

/** Return the direction of a swipe; "" if it is none. */
export function swipeDirection(from: TouchPoint, to: TouchPoint, width: number): SwipeDirection {
  const dx = to.x - from.x;
  const isSwipe = Math.abs(dx) >= DISTANCE_PX_MIN && Math.abs(dx) >= HORIZONTAL_RATIO_MIN * Math.abs(to.y - from.y) && to.ms - from.ms <= DURATION_MS_MAX;
  if (!isSwipe || from.x < EDGE_PX || from.x > width - EDGE_PX) return "";
  return dx > 0 ? "right" : "left";
}

const PANES: readonly Pane[] = ["list", "conversation", "details"];

/** Return the pane after a swipe. Only a conversation has details. */
export function paneAfterSwipe(pane: Pane, direction: SwipeDirection, hasDetails: boolean): Pane {
  const index = PANES.indexOf(pane) + (direction === "left" ? 1 : direction === "right" ? -1 : 0);
  const next = PANES[Math.min(Math.max(index, 0), PANES.length - 1)] ?? pane;
  return next === "details" && !hasDetails ? pane : next;
}
