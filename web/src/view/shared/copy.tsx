// Copy text, also in browsers that offer no clipboard to pages without encryption.

import { useSignal } from "@preact/signals";
import { CopyIcon, CheckIcon } from "./icons";
import { showNotice } from "../app/store";
import { s } from "../text/index";

const FEEDBACK_MS = 1_500;

/** Copy a text, or show that it failed. Return whether it was copied. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const isCopied = copyBySelection(text);
    if (!isCopied) showNotice(s.notCopied);
    return isCopied;
  }
}

function copyBySelection(text: string): boolean {
  const before = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "visually-hidden";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (before instanceof HTMLElement) before.focus({ preventScroll: true });
  return isCopied;
}

/** A small button that copies the result of `text`. */
export function CopyButton({ label, text }: { label: string; text: () => string }) {
  const isCopied = useSignal(false);
  const copy = async () => {
    if (!(await copyText(text()))) return;
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), FEEDBACK_MS);
  };
  return (
    <button type="button" class="quiet" aria-label={label} title={isCopied.value ? s.copied : label} onClick={() => void copy()}>
      {isCopied.value ? <CheckIcon /> : <CopyIcon />}
      <span class="visually-hidden" role="status">{isCopied.value && s.copied}</span>
    </button>
  );
}
