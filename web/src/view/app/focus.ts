// Move the keyboard focus.

import { smallScreen } from "../details/store";

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Focus `node`, unless the user is typing. */
export function focusUnlessTyping(node: HTMLElement | null | undefined): void {
  const focused = document.activeElement;
  if (!isTyping(focused) || (focused instanceof HTMLTextAreaElement && !focused.value)) node?.focus({ preventScroll: true });
}

/** Restore the focus to `previous`, or to the composer; not on a phone, where that would open the on-screen keyboard. */
export function restoreFocus(previous?: Element | null): void {
  const canFocus = previous instanceof HTMLElement && previous.isConnected && previous !== document.body;
  const node = canFocus ? previous : document.querySelector<HTMLElement>(".composer textarea");
  if (node && !(smallScreen.matches && isTyping(node))) node.focus({ preventScroll: true });
}

/** Focus the composer after the focused element was removed, unless another element like it has appeared. */
export function restoreFocusAfterRemoval(selector: string): void {
  setTimeout(() => {
    if (document.activeElement === document.body && !document.querySelector(selector)) restoreFocus();
  });
}
