// All that a tool printed: as text, a piece at a time, so that even a very long one can be read.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Refused } from "../../core/api";
import type { FilePart } from "../../core/protocol";
import { addressOf, opened } from "./attachments";
import { Sheet } from "../shared/dialog";
import { api } from "../app/store";
import { s } from "../text/index";

const PIECE_CHARS = 200_000;

export function Output() {
  const file = opened.value;
  return file ? <Sheet title={s.wholeOutput} wide><Whole file={file} /></Sheet> : null;
}

/** The text of a file, and a way to save it. */
export function Whole({ file }: { file: FilePart }) {
  const text = useSignal<string | null>(null);
  const wrong = useSignal("");
  const shown = useSignal(PIECE_CHARS);
  const read = async () => {
    try {
      text.value = await (await api.fetched(`api/files/${file.blob}`)).text();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = error.problem.status === 404 ? s.fileGone : error.message;
    }
  };
  useEffect(() => void read(), [file.blob]);
  const all = text.value ?? "";
  return (
    <>
      <p class="buttons"><a class="button" href={addressOf(file)} download={file.name}>{s.saveFile}</a><span class="note quiet">{s.size(file.size_bytes)}</span></p>
      {wrong.value && <p class="note wrong" role="alert">{wrong.value}</p>}
      {text.value === null && !wrong.value && <p role="status" class="note quiet">{s.loading}</p>}
      {text.value !== null && <pre class="whole" tabIndex={0} aria-label={s.output}>{all.slice(0, shown.value)}</pre>}
      {all.length > shown.value && <p class="buttons"><button type="button" onClick={() => (shown.value += PIECE_CHARS)}>{s.showMore}</button></p>}
    </>
  );
}
