// What can follow a slash, while one is typed: what the page does, and prompts that people have written.

import { useEffect } from "preact/hooks";
import { prompts, readPrompts } from "./agent_model";
import { s } from "../text/index";

const NAME = /^\/([a-z][\w-]*)?$/i;
const CALL = /^\/([a-z][\w-]*)(?:\s+(.*))?$/is;

/** The command that a message is, and the rest of it; null for anything else, such as a path. */
export function called(text: string): { name: string; rest: string } | null {
  const found = CALL.exec(text);
  return found?.[1] ? { name: found[1].toLowerCase(), rest: (found[2] ?? "").trim() } : null;
}

/** Whether a prompt has this name; null: nobody can say. One may have been written a moment ago: it is looked for again. */
export async function isPrompt(name: string): Promise<boolean | null> {
  const has = () => prompts.value.some((each) => each.name === name);
  if (has()) return true;
  return readPrompts().then(has, () => null);
}

/** What begins as `text` does; nothing where that is no command. */
export function completions(text: string): { name: string; what: string }[] {
  if (!NAME.test(text)) return [];
  const all = new Map<string, string>(Object.entries(s.commands));
  // Where both have a name, it is the prompt's: the server lets none have the name of what every door knows.
  for (const each of prompts.value) all.set(each.name, each.about);
  return [...all].filter(([name]) => name.startsWith(text.slice(1).toLowerCase())).map(([name, what]) => ({ name, what }));
}

export function Commands({ text, at, choose }: { text: string; at: number; choose: (name: string) => void }) {
  const isTyped = text.startsWith("/");
  useEffect(() => {
    if (isTyped) void readPrompts().catch(() => undefined);
  }, [isTyped]);
  const found = completions(text);
  if (!found.length) return null;
  return (
    <ul class="menu commands" id="commands" role="listbox" aria-label={s.palette}>
      {found.map(({ name, what }, place) => (
        <li key={name} id={`command-${place}`} role="option" aria-selected={place === at} ref={(node) => { if (place === at) node?.scrollIntoView({ block: "nearest" }); }}
          onPointerDown={(event) => event.preventDefault()} onClick={() => choose(name)}><b>/{name}</b> {what}</li>
      ))}
    </ul>
  );
}
