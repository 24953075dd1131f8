// Something that lies over the page until it is closed: takes the keyboard, gives it back.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { giveBack } from "../app/focus";
import { Passing } from "./toast";
import { panel } from "../app/store";
import { s } from "../text/index";

export function Sheet({ title, children, wide = false }: { title: string; children: ComponentChildren; wide?: boolean }) {
  const box = useRef<HTMLDialogElement>(null);
  // At once, not with the next picture: what is typed meanwhile is typed here.
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current?.showModal();
    // Nothing behind it can have the keyboard before it is gone.
    return () => queueMicrotask(() => giveBack(before));
  }, []);
  return (
    <dialog class={wide ? "sheet wide" : "sheet"} ref={box} aria-label={title} onClose={() => (panel.value = "")}
      onClick={(event) => event.target === box.current && (panel.value = "")}>
      <header><h2>{title}</h2><button type="button" class="quiet" aria-label={s.close} onClick={() => (panel.value = "")}>×</button></header>
      {children}
      <Passing />
    </dialog>
  );
}
