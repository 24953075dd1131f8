// Copying a text as it was written, also where the browser has no clipboard for pages without encryption.

import { useSignal } from "@preact/signals";
import { Sheets, Tick } from "./icons";
import { say } from "../app/store";
import { s } from "../text/index";

const SHOWN_MS = 1_500;

/** Copy a text; say so where that cannot be done. Returns whether it was. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const isCopied = copyBySelection(text);
    if (!isCopied) say(s.notCopied);
    return isCopied;
  }
}

function copyBySelection(text: string): boolean {
  const before = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  return isCopied;
}

/** A small button that copies what `text` gives. */
export function Copy({ label, text }: { label: string; text: () => string }) {
  const isCopied = useSignal(false);
  const copy = async () => {
    if (!(await copyText(text()))) return;
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), SHOWN_MS);
  };
  return (
    <button type="button" class="quiet" aria-label={label} title={isCopied.value ? s.copied : label} onClick={() => void copy()}>
      {isCopied.value ? <Tick /> : <Sheets />}
      <span class="unseen" role="status">{isCopied.value && s.copied}</span>
    </button>
  );
}
