// Show the changes of a file line by line, added and removed lines by sign and colour.

import { s } from "../text/index";

const LINE_CLASSES: Record<string, string> = { "+": "plus", "-": "minus", "@": "hunk", "\\": "hunk" };

/** Show how many lines were added and removed. */
export function ChangeCounts({ added, removed }: { added: number; removed: number }) {
  return (
    <span class="counts">
      {added > 0 && <span class="plus"><span aria-hidden="true">+{added}</span><span class="visually-hidden">{s.linesAdded(added)} </span></span>}
      {removed > 0 && <span class="minus"><span aria-hidden="true">−{removed}</span><span class="visually-hidden">{s.linesRemoved(removed)} </span></span>}
    </span>
  );
}

export function Diff({ text, path }: { text: string; path: string }) {
  const lines = text.replace(/\n$/, "").split("\n").filter((line, index) => index > 1 || !/^(---|\+\+\+) /.test(line));
  return (
    <pre class="diff" tabIndex={0} aria-label={s.changesOf(path)}>
      {lines.map((line, place) => <span key={place} class={LINE_CLASSES[line[0] ?? ""] ?? ""}>{`${line}\n`}</span>)}
    </pre>
  );
}
