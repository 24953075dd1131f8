// Who has the keyboard.

export function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

/** Give the keyboard to `node`, unless somebody is writing: then it stays where it is. */
export function takeKeyboard(node: HTMLElement | null | undefined): void {
  const focused = document.activeElement;
  if (!isTyping(focused) || (focused instanceof HTMLTextAreaElement && !focused.value)) node?.focus({ preventScroll: true });
}
