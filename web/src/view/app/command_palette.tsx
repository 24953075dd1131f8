// Ctrl+K: everything that can be done, and every conversation, by typing a few letters.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { slash } from "./actions";
import { readPrompts } from "../composer/agent_model";
import { completions } from "../composer/slash_commands";
import { Sheet } from "../shared/dialog";
import { ordered, panel, titleOf } from "./store";
import { s } from "../text/index";
import { goTo } from "./navigation";

interface Choice {
  key: string;
  text: string;
  /** The text to search. */
  words: string;
  run: () => unknown;
}

function choices(typed: string): Choice[] {
  const verbs = Object.entries(s.commands).map(([name, text]) => ({ key: name, text, words: `${name} ${text}`, run: () => slash[name]?.("") }));
  const places = ordered.value.map((row) => ({ key: row.id, text: titleOf(row), words: titleOf(row), run: () => goTo(row.id) }));
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return [...verbs, ...places].filter((choice) => words.every((word) => choice.words.toLowerCase().includes(word))).slice(0, 12);
}

export function Palette() {
  const typed = useSignal("");
  const at = useSignal(0);
  const found = choices(typed.value);
  const run = (choice: Choice | undefined) => {
    panel.value = "";
    choice?.run();
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") at.value = Math.min(at.value + 1, found.length - 1);
    else if (event.key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
    else if (event.key === "Enter") run(found[at.value]);
    else return;
    event.preventDefault();
  };
  return (
    <Sheet title={s.palette}>
      <input role="combobox" aria-expanded={found.length > 0} aria-controls="choices" aria-activedescendant={found.length ? `choice-${at.value}` : undefined} aria-label={s.palette} placeholder={s.palette} value={typed.value} autofocus
        onInput={(event) => { typed.value = event.currentTarget.value; at.value = 0; }} onKeyDown={press} />
      <ul class="choices" id="choices" role="listbox" aria-label={s.palette}>
        {found.map((choice, place) => (
          <li key={choice.key} id={`choice-${place}`} role="option" aria-selected={place === at.value} onClick={() => run(choice)}>{choice.text}</li>
        ))}
      </ul>
      <p class="note quiet" role="status">{!found.length && s.noneFound}</p>
    </Sheet>
  );
}

/** What `/help` shows: the keys, and all that can follow a slash. */
export function Keyboard() {
  useEffect(() => void readPrompts().catch(() => undefined), []);
  return (
    <Sheet title={s.keyboard}>
      <dl class="keys">{s.keys.map(([keys, what]) => <div key={keys}><dt><kbd>{keys}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <h3>{s.afterSlash}</h3>
      <dl class="keys">{completions("/").map(({ name, what }) => <div key={name}><dt>/{name}</dt><dd>{what}</dd></div>)}</dl>
    </Sheet>
  );
}
