// A modal dialog: takes the focus, and restores it when it closes.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { restoreFocus } from "../app/focus";
import { Toast } from "./toast";
import { panel } from "../app/store";
import { s } from "../text/index";

export function Dialog({ title, children, wide = false }: { title: string; children: ComponentChildren; wide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  // A layout effect, so that keys pressed before the next frame reach the dialog.
  useLayoutEffect(() => {
    const previousFocus = document.activeElement;
    dialog.current?.showModal();
    // The page behind cannot take the focus before the dialog is removed.
    return () => queueMicrotask(() => restoreFocus(previousFocus));
  }, []);
  return (
    <dialog class={wide ? "sheet wide" : "sheet"} ref={dialog} aria-label={title} onClose={() => (panel.value = "")}
      onClick={(event) => event.target === dialog.current && (panel.value = "")}>
      <header><h2>{title}</h2><button type="button" class="quiet" aria-label={s.close} onClick={() => (panel.value = "")}>×</button></header>
      {children}
      <Toast />
    </dialog>
  );
}
