// The progress of a session's work, as two events of the feed report it.

export interface Progress {
  state: string;
  turns: number;
  unread: boolean;
}

export function isOver(state: string): boolean {
  return state === "idle" || state === "failed";
}

/** Return whether work ended between the two. The feed may omit that work began, or that it went on after a question. */
export function hasEnded(was: Progress, is: Progress): boolean {
  return isOver(is.state) && (!isOver(was.state) || (is.unread && (!was.unread || is.turns > was.turns)));
}
