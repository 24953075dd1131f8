// What a finger means that moves across a small screen: the list lies to the left of a conversation, its details
// to the right.

/** Where a finger was, and when. */
export interface Touch {
  readonly x: number;
  readonly y: number;
  readonly ms: number;
}

export type Way = "left" | "right" | "";
export type Shown = "list" | "conversation" | "details";

const FAR_PX = 56;
const QUICK_MS = 700;
/** Whoever goes up or down as well wants to scroll. */
const FLAT = 2;
/** What begins at the very edge is the browser's own: back, and forward. */
const EDGE_PX = 16;

/** Which way a finger went, if it went one. */
export function wayOf(from: Touch, to: Touch, width: number): Way {
  const across = to.x - from.x;
  const isMeant = Math.abs(across) >= FAR_PX && Math.abs(across) >= FLAT * Math.abs(to.y - from.y) && to.ms - from.ms <= QUICK_MS;
  if (!isMeant || from.x < EDGE_PX || from.x > width - EDGE_PX) return "";
  return across > 0 ? "right" : "left";
}

const ORDER: readonly Shown[] = ["list", "conversation", "details"];

/** What is shown after a finger went that way; only a conversation has details. */
export function shownAfter(shown: Shown, way: Way, hasDetails: boolean): Shown {
  const at = ORDER.indexOf(shown) + (way === "left" ? 1 : way === "right" ? -1 : 0);
  const next = ORDER[Math.min(Math.max(at, 0), ORDER.length - 1)] ?? shown;
  return next === "details" && !hasDetails ? shown : next;
}
