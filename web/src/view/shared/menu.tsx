// What can be done with a line of a list, opened by a button beside it: one menu at a time, closed by whoever
// presses, scrolls or moves elsewhere, and moved in with the arrow keys.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Dots } from "./icons";
import { s } from "../text/index";

export interface Item {
  text: string;
  run: () => unknown;
}

const EDGE_PX = 8;
/** Whose menu is open; and whose was used last, so that the keyboard finds back to a line that has moved. */
const opened = signal("");
const used = { last: "" };

export function Menu({ id, title, items }: { id: string; title: string; items: readonly Item[] }) {
  const button = useRef<HTMLButtonElement>(null);
  const isOpen = opened.value === id;
  useEffect(() => {
    if (used.last !== id) return;
    used.last = "";
    if (!document.activeElement || document.activeElement === document.body) button.current?.focus();
  }, []);
  // A line that goes while its menu is open takes it along.
  useEffect(() => () => void (opened.value === id && (opened.value = "")), []);
  const close = (comesBack: boolean) => {
    opened.value = "";
    if (comesBack) button.current?.focus();
  };
  const choose = (item: Item) => {
    used.last = id;
    close(true);
    item.run();
  };
  return (
    <>
      <button class="quiet" type="button" ref={button} aria-label={`${s.more}: ${title}`} aria-haspopup="menu" aria-expanded={isOpen}
        onClick={() => (opened.value = isOpen ? "" : id)}
        onKeyDown={(event) => event.key === "ArrowDown" && (event.preventDefault(), (opened.value = id))}><Dots /></button>
      {isOpen && <Opened title={title} items={items} choose={choose} close={close} button={button.current} />}
    </>
  );
}

interface Given {
  title: string;
  items: readonly Item[];
  choose: (item: Item) => void;
  close: (comesBack: boolean) => void;
  button: HTMLButtonElement | null;
}

function Opened({ title, items, choose, close, button }: Given) {
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const node = box.current;
    if (!node || !button) return;
    const { bottom, right } = button.getBoundingClientRect();
    node.style.top = `${Math.max(EDGE_PX, Math.min(bottom, innerHeight - node.offsetHeight - EDGE_PX))}px`;
    node.style.left = `${Math.max(EDGE_PX, right - node.offsetWidth)}px`;
    node.querySelector("button")?.focus({ preventScroll: true });
    const away = (event: Event) => {
      const where = event.target as Node | null;
      if (!node.contains(where) && !button.contains(where)) close(false);
    };
    for (const name of ["pointerdown", "scroll", "focusin"]) addEventListener(name, away, true);
    return () => {
      for (const name of ["pointerdown", "scroll", "focusin"]) removeEventListener(name, away, true);
    };
  }, []);
  const press = (event: KeyboardEvent) => {
    const all = [...(box.current?.querySelectorAll("button") ?? [])];
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const next = { ArrowDown: (at + 1) % all.length, ArrowUp: (at || all.length) - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next !== undefined) all[next]?.focus();
    else if (event.key === "Escape") close(true);
    // From where it was opened the keyboard goes on.
    else if (event.key === "Tab") return close(true);
    else return;
    event.preventDefault();
    // What is closed here is not an answer that is to be stopped.
    event.stopPropagation();
  };
  return (
    <div class="menu" role="menu" ref={box} aria-label={title} onKeyDown={press}>
      {items.map((item) => <button key={item.text} role="menuitem" type="button" tabIndex={-1} onClick={() => choose(item)}>{item.text}</button>)}
    </div>
  );
}
