// A combobox for a model's name, with each model's context window and price.

import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import type { ModelInfo } from "../../core/protocol";
import { s } from "../text/index";
import { settingsText } from "../text/settings";

const SHOWN_MAX = 50;

/** A model to choose from. A null price is unknown; without one, nobody has looked it up. */
export type ModelOption = Omit<ModelInfo, "price"> & { readonly price?: ModelInfo["price"] };

/** Return a model's context window and price as text. */
export function modelSummary({ window_tokens, price }: ModelOption): string {
  const cost = price ? settingsText.perMillion(price) : price === null ? s.priceUnknown : "";
  return [window_tokens ? settingsText.window(window_tokens) : "", cost].filter(Boolean).join(" · ");
}

interface ModelPickerProps {
  label: string;
  value: string;
  options: readonly ModelOption[];
  placeholder?: string;
  disabled?: boolean;
  /** Called with the name that was chosen or typed. */
  onChoose: (name: string) => unknown;
  /** Called with every keystroke. */
  onType?: (name: string) => void;
}

export function ModelPicker({ label, value, options, placeholder, disabled, onChoose, onType }: ModelPickerProps) {
  const id = useId();
  const typedText = useSignal<string | null>(null);
  /** The text typed since the list was opened. It filters the list; a name that was there before does not. */
  const filterText = useSignal("");
  const isOpen = useSignal(false);
  const selectedIndex = useSignal(-1);
  const list = useRef<HTMLUListElement>(null);
  const terms = filterText.value.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = isOpen.value ? options.filter(({ name }) => terms.every((word) => name.toLowerCase().includes(word))).slice(0, SHOWN_MAX) : [];
  const show = () => {
    filterText.value = "";
    isOpen.value = true;
  };
  const close = () => {
    isOpen.value = false;
    selectedIndex.value = -1;
  };
  const accept = (name: string) => {
    typedText.value = null;
    close();
    if (name !== value) onChoose(name);
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!matches.length) show();
      const last = Math.min(matches.length || options.length, SHOWN_MAX) - 1;
      selectedIndex.value = event.key === "ArrowDown" ? Math.min(selectedIndex.value + 1, last) : Math.max(selectedIndex.value - 1, -1);
    } else if (event.key === "Enter" && isOpen.value && matches[selectedIndex.value]) accept(matches[selectedIndex.value]?.name ?? "");
    // Let Enter submit the surrounding form.
    else if (event.key === "Enter" && typedText.value !== null) return accept(typedText.value.trim());
    else if (event.key === "Escape" && isOpen.value && matches.length) {
      event.stopPropagation();
      close();
    } else return;
    event.preventDefault();
  };
  const isShown = isOpen.value && matches.length > 0;
  useEffect(() => {
    if (isShown) (list.current?.children[selectedIndex.value] ?? list.current)?.scrollIntoView({ block: "nearest" });
  }, [isShown, selectedIndex.value]);
  return (
    <div class="picker">
      <label for={id}>{label}</label>
      <input id={id} role="combobox" autocomplete="off" spellcheck={false} disabled={disabled} placeholder={placeholder} value={typedText.value ?? value}
        aria-expanded={isShown} aria-controls={`${id}-list`} aria-activedescendant={isShown && selectedIndex.value >= 0 ? `${id}-${selectedIndex.value}` : undefined}
        onInput={(event) => { typedText.value = filterText.value = event.currentTarget.value; isOpen.value = true; selectedIndex.value = -1; onType?.(typedText.value.trim()); }}
        onClick={show} onKeyDown={handleKey}
        onBlur={() => (typedText.value === null ? close() : accept(typedText.value.trim()))} />
      <ul ref={list} class="choices menu" id={`${id}-list`} role="listbox" aria-label={label} hidden={!isShown}>
        {matches.map((each, index) => (
          <li key={each.name} id={`${id}-${index}`} role="option" aria-selected={index === selectedIndex.value}
            onPointerDown={(event) => event.preventDefault()} onClick={() => accept(each.name)}><span>{each.name}</span> <small>{modelSummary(each)}</small></li>
        ))}
      </ul>
    </div>
  );
}
