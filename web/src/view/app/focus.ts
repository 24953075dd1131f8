// Who has the keyboard.

import { small } from "../details/store";

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Give the keyboard to `node`, unless somebody is writing: then it stays where it is. */
export function takeKeyboard(node: HTMLElement | null | undefined): void {
  const focused = document.activeElement;
  if (!isTyping(focused) || (focused instanceof HTMLTextAreaElement && !focused.value)) node?.focus({ preventScroll: true });
}

/** Give the keyboard back to who had it before, or to where one writes; on a phone a keyboard of glass would come with that. */
export function giveBack(before?: Element | null): void {
  const isThere = before instanceof HTMLElement && before.isConnected && before !== document.body;
  const node = isThere ? before : document.querySelector<HTMLElement>(".composer textarea");
  if (node && !(small.matches && isTyping(node))) node.focus({ preventScroll: true });
}

/** For what has the keyboard and goes away: once it is gone, and nothing like it has come, one writes on. */
export function giveBackAfter(kind: string): void {
  setTimeout(() => {
    if (document.activeElement === document.body && !document.querySelector(kind)) giveBack();
  });
}
