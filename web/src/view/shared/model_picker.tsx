// A model by its name: typed, or chosen from what there is, with how much it reads and what it costs.

import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import type { ModelTold } from "../../core/protocol";
import { s } from "../text/index";
import { set } from "../text/settings";

const SHOWN_MAX = 50;

/** A model that can be chosen; null is a price that is not known, and without any nobody has looked yet. */
export type Offer = Omit<ModelTold, "price"> & { readonly price?: ModelTold["price"] };

/** What is known of a model, in a few words. */
export function aboutModel({ window_tokens, price }: Offer): string {
  const cost = price ? set.perMillion(price) : price === null ? s.priceUnknown : "";
  return [window_tokens ? set.window(window_tokens) : "", cost].filter(Boolean).join(" · ");
}

interface Given {
  label: string;
  value: string;
  offers: readonly Offer[];
  placeholder?: string;
  disabled?: boolean;
  /** Called with what was chosen, or typed and left. */
  choose: (name: string) => unknown;
  /** Called with every letter. */
  typing?: (name: string) => void;
}

export function Picker({ label, value, offers, placeholder, disabled, choose, typing }: Given) {
  const id = useId();
  const typed = useSignal<string | null>(null);
  /** The text typed since the list was opened. It filters the list; a name that was there before does not. */
  const sought = useSignal("");
  const isOpen = useSignal(false);
  const at = useSignal(-1);
  const list = useRef<HTMLUListElement>(null);
  const words = sought.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = isOpen.value ? offers.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word))).slice(0, SHOWN_MAX) : [];
  const show = () => {
    sought.value = "";
    isOpen.value = true;
  };
  const close = () => {
    isOpen.value = false;
    at.value = -1;
  };
  const take = (name: string) => {
    typed.value = null;
    close();
    if (name !== value) choose(name);
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!found.length) show();
      const last = Math.min(found.length || offers.length, SHOWN_MAX) - 1;
      at.value = event.key === "ArrowDown" ? Math.min(at.value + 1, last) : Math.max(at.value - 1, -1);
    } else if (event.key === "Enter" && isOpen.value && found[at.value]) take(found[at.value]?.name ?? "");
    // In a form, Enter goes on to send it.
    else if (event.key === "Enter" && typed.value !== null) return take(typed.value.trim());
    else if (event.key === "Escape" && isOpen.value && found.length) {
      event.stopPropagation();
      close();
    } else return;
    event.preventDefault();
  };
  const isShown = isOpen.value && found.length > 0;
  useEffect(() => {
    if (isShown) (list.current?.children[at.value] ?? list.current)?.scrollIntoView({ block: "nearest" });
  }, [isShown, at.value]);
  return (
    <div class="picker">
      <label for={id}>{label}</label>
      <input id={id} role="combobox" autocomplete="off" spellcheck={false} disabled={disabled} placeholder={placeholder} value={typed.value ?? value}
        aria-expanded={isShown} aria-controls={`${id}-list`} aria-activedescendant={isShown && at.value >= 0 ? `${id}-${at.value}` : undefined}
        onInput={(event) => { typed.value = sought.value = event.currentTarget.value; isOpen.value = true; at.value = -1; typing?.(typed.value.trim()); }}
        onClick={show} onKeyDown={press}
        onBlur={() => (typed.value === null ? close() : take(typed.value.trim()))} />
      <ul ref={list} class="choices menu" id={`${id}-list`} role="listbox" aria-label={label} hidden={!isShown}>
        {found.map((each, place) => (
          <li key={each.name} id={`${id}-${place}`} role="option" aria-selected={place === at.value}
            onPointerDown={(event) => event.preventDefault()} onClick={() => take(each.name)}><span>{each.name}</span> <small>{aboutModel(each)}</small></li>
        ))}
      </ul>
    </div>
  );
}
