// The progress of a conversation's work, as two messages of the feed show it.

export interface Progress {
  state: string;
  turns: number;
  unread: boolean;
}

export function isOver(state: string): boolean {
  return state === "idle" || state === "failed";
}

/** Return whether the work ended between the two. The feed may leave out that it began, or that it went on after a question. */
export function hasEnded(was: Progress, is: Progress): boolean {
  return isOver(is.state) && (!isOver(was.state) || (is.unread && (!was.unread || is.turns > was.turns)));
}
