// Completion of slash commands: the page's own commands, and prompts.

import { useEffect } from "preact/hooks";
import { prompts, readPrompts } from "./agent_model";
import { s } from "../text/index";

const NAME_PATTERN = /^\/([a-z][\w-]*)?$/i;
const COMMAND_PATTERN = /^\/([a-z][\w-]*)(?:\s+(.*))?$/is;

/** Return the command of a message and the rest of it; null for anything else, such as a path. */
export function parseCommand(text: string): { name: string; rest: string } | null {
  const match = COMMAND_PATTERN.exec(text);
  return match?.[1] ? { name: match[1].toLowerCase(), rest: (match[2] ?? "").trim() } : null;
}

/** Return whether a prompt has this name; null if the server cannot be asked. Reload the prompts if the name is unknown. */
export async function isPrompt(name: string): Promise<boolean | null> {
  const isKnown = () => prompts.value.some((each) => each.name === name);
  if (isKnown()) return true;
  return readPrompts().then(isKnown, () => null);
}

/** Return the commands that begin with `text`; none if `text` is no command. */
export function completions(text: string): { name: string; what: string }[] {
  if (!NAME_PATTERN.test(text)) return [];
  const commands = new Map<string, string>(Object.entries(s.commands));
  // A prompt overrides the page's command of the same name. The server reserves the names that every client has.
  for (const each of prompts.value) commands.set(each.name, each.about);
  return [...commands].filter(([name]) => name.startsWith(text.slice(1).toLowerCase())).map(([name, what]) => ({ name, what }));
}

export function CommandMenu({ text, selectedIndex, choose }: { text: string; selectedIndex: number; choose: (name: string) => void }) {
  const isTyped = text.startsWith("/");
  useEffect(() => {
    if (isTyped) void readPrompts().catch(() => undefined);
  }, [isTyped]);
  const matches = completions(text);
  if (!matches.length) return null;
  return (
    <ul class="menu commands" id="commands" role="listbox" aria-label={s.palette}>
      {matches.map(({ name, what }, index) => (
        <li key={name} id={`command-${index}`} role="option" aria-selected={index === selectedIndex} ref={(node) => { if (index === selectedIndex) node?.scrollIntoView({ block: "nearest" }); }}
          onPointerDown={(event) => event.preventDefault()} onClick={() => choose(name)}><b>/{name}</b> {what}</li>
      ))}
    </ul>
  );
}
