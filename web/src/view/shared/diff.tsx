// What changed in a file, line by line: what was added and what was taken away is told apart by sign and colour.

import { s } from "../text/index";

const KINDS: Record<string, string> = { "+": "plus", "-": "minus", "@": "hunk", "\\": "hunk" };

/** How much was added and removed. */
export function Counts({ added, removed }: { added: number; removed: number }) {
  return (
    <span class="counts">
      {added > 0 && <span class="plus"><span aria-hidden="true">+{added}</span><span class="unseen">{s.linesAdded(added)} </span></span>}
      {removed > 0 && <span class="minus"><span aria-hidden="true">−{removed}</span><span class="unseen">{s.linesRemoved(removed)} </span></span>}
    </span>
  );
}

export function Diff({ text, path }: { text: string; path: string }) {
  const lines = text.replace(/\n$/, "").split("\n").filter((line, place) => place > 1 || !/^(---|\+\+\+) /.test(line));
  return (
    <pre class="diff" tabIndex={0} aria-label={s.changesOf(path)}>
      {lines.map((line, place) => <span key={place} class={KINDS[line[0] ?? ""] ?? ""}>{`${line}\n`}</span>)}
    </pre>
  );
}
