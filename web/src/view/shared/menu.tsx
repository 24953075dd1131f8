// A menu for a row of a list, opened by a button beside it. One menu is open at a time. A press, a scroll or a
// focus change outside closes it; the arrow keys move in it.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { MenuIcon } from "./icons";
import { s } from "../text/index";

export interface MenuItem {
  text: string;
  run: () => unknown;
}

const EDGE_PX = 8;
/** The row whose menu is open, and the row whose menu was used last: a row that moves in the list gets the focus back. */
const openMenuId = signal("");
const lastUsed = { id: "" };

export function Menu({ id, title, items }: { id: string; title: string; items: readonly MenuItem[] }) {
  const button = useRef<HTMLButtonElement>(null);
  const isOpen = openMenuId.value === id;
  useEffect(() => {
    if (lastUsed.id !== id) return;
    lastUsed.id = "";
    if (!document.activeElement || document.activeElement === document.body) button.current?.focus();
  }, []);
  // Close the menu if its row is removed.
  useEffect(() => () => void (openMenuId.value === id && (openMenuId.value = "")), []);
  const close = (restoresFocus: boolean) => {
    openMenuId.value = "";
    if (restoresFocus) button.current?.focus();
  };
  const choose = (item: MenuItem) => {
    lastUsed.id = id;
    close(true);
    item.run();
  };
  return (
    <>
      <button class="quiet" type="button" ref={button} aria-label={`${s.more}: ${title}`} aria-haspopup="menu" aria-expanded={isOpen}
        onClick={() => (openMenuId.value = isOpen ? "" : id)}
        onKeyDown={(event) => event.key === "ArrowDown" && (event.preventDefault(), (openMenuId.value = id))}><MenuIcon /></button>
      {isOpen && <OpenMenu title={title} items={items} choose={choose} close={close} button={button.current} />}
    </>
  );
}

interface OpenMenuProps {
  title: string;
  items: readonly MenuItem[];
  choose: (item: MenuItem) => void;
  close: (restoresFocus: boolean) => void;
  button: HTMLButtonElement | null;
}

function OpenMenu({ title, items, choose, close, button }: OpenMenuProps) {
  const container = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const node = container.current;
    if (!node || !button) return;
    const { bottom, right } = button.getBoundingClientRect();
    node.style.top = `${Math.max(EDGE_PX, Math.min(bottom, innerHeight - node.offsetHeight - EDGE_PX))}px`;
    node.style.left = `${Math.max(EDGE_PX, right - node.offsetWidth)}px`;
    node.querySelector("button")?.focus({ preventScroll: true });
    const closeOutside = (event: Event) => {
      const where = event.target as Node | null;
      if (!node.contains(where) && !button.contains(where)) close(false);
    };
    for (const name of ["pointerdown", "scroll", "focusin"]) addEventListener(name, closeOutside, true);
    return () => {
      for (const name of ["pointerdown", "scroll", "focusin"]) removeEventListener(name, closeOutside, true);
    };
  }, []);
  const handleKey = (event: KeyboardEvent) => {
    const all = [...(container.current?.querySelectorAll("button") ?? [])];
    const index = all.indexOf(document.activeElement as HTMLButtonElement);
    const next = { ArrowDown: (index + 1) % all.length, ArrowUp: (index || all.length) - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) all[next]?.focus();
    else if (event.key === "Escape") close(true);
    // Tab continues from the button that opened the menu.
    else if (event.key === "Tab") return close(true);
    else return;
    event.preventDefault();
    // Keep Escape from stopping the running answer.
    event.stopPropagation();
  };
  return (
    <div class="menu" role="menu" ref={container} aria-label={title} onKeyDown={handleKey}>
      {items.map((item) => <button key={item.text} role="menuitem" type="button" tabIndex={-1} onClick={() => choose(item)}>{item.text}</button>)}
    </div>
  );
}
