// Ctrl+K: search all commands and sessions.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { slashCommands } from "./actions";
import { readPrompts } from "../composer/agent_model";
import { completions } from "../composer/slash_commands";
import { Dialog } from "../shared/dialog";
import { listedSessions, panel, sessionTitle } from "./store";
import { s } from "../text/index";
import { goTo } from "./navigation";

interface PaletteItem {
  key: string;
  text: string;
  /** The text to search. */
  words: string;
  run: () => unknown;
}

function paletteItems(typed: string): PaletteItem[] {
  const commands = Object.entries(s.commands).map(([name, text]) => ({ key: name, text, words: `${name} ${text}`, run: () => slashCommands[name]?.("") }));
  const conversations = listedSessions.value.map((row) => ({ key: row.id, text: sessionTitle(row), words: sessionTitle(row), run: () => goTo(row.id) }));
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  return [...commands, ...conversations].filter((choice) => words.every((word) => choice.words.toLowerCase().includes(word))).slice(0, 12);
}

export function CommandPalette() {
  const typed = useSignal("");
  const selectedIndex = useSignal(0);
  const matches = paletteItems(typed.value);
  const run = (choice: PaletteItem | undefined) => {
    panel.value = "";
    choice?.run();
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") selectedIndex.value = Math.min(selectedIndex.value + 1, matches.length - 1);
    else if (event.key === "ArrowUp") selectedIndex.value = Math.max(selectedIndex.value - 1, 0);
    else if (event.key === "Enter") run(matches[selectedIndex.value]);
    else return;
    event.preventDefault();
  };
  return (
    <Dialog title={s.palette}>
      <input role="combobox" aria-expanded={matches.length > 0} aria-controls="choices" aria-activedescendant={matches.length ? `choice-${selectedIndex.value}` : undefined} aria-label={s.palette} placeholder={s.palette} value={typed.value} autofocus
        onInput={(event) => { typed.value = event.currentTarget.value; selectedIndex.value = 0; }} onKeyDown={handleKey} />
      <ul class="choices" id="choices" role="listbox" aria-label={s.palette}>
        {matches.map((choice, index) => (
          <li key={choice.key} id={`choice-${index}`} role="option" aria-selected={index === selectedIndex.value} onClick={() => run(choice)}>{choice.text}</li>
        ))}
      </ul>
      <p class="note quiet" role="status">{!matches.length && s.noneFound}</p>
    </Dialog>
  );
}

/** The help of `/help`: the keys and the slash commands. */
export function HelpDialog() {
  useEffect(() => void readPrompts().catch(() => undefined), []);
  return (
    <Dialog title={s.keyboard}>
      <dl class="keys">{s.keys.map(([keys, what]) => <div key={keys}><dt><kbd>{keys}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <h3>{s.afterSlash}</h3>
      <dl class="keys">{completions("/").map(({ name, what }) => <div key={name}><dt>/{name}</dt><dd>{what}</dd></div>)}</dl>
    </Dialog>
  );
}
