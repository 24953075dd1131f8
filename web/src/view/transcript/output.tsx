// The whole output of a tool as text, in chunks, so that even a very long one can be read.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { FilePart } from "../../core/protocol";
import { downloadUrl, openedFile } from "./attachments";
import { Dialog } from "../shared/dialog";
import { api } from "../app/store";
import { s } from "../text/index";

const CHUNK_CHARS = 200_000;

export function OutputDialog() {
  const file = openedFile.value;
  return file ? <Dialog title={s.wholeOutput} wide><FileText file={file} /></Dialog> : null;
}

/** Show the text of a file, and a link to save it. */
export function FileText({ file }: { file: FilePart }) {
  const text = useSignal<string | null>(null);
  const errorText = useSignal("");
  const shownChars = useSignal(CHUNK_CHARS);
  const loadText = async () => {
    try {
      text.value = await (await api.getBlob(`api/files/${file.blob}`)).text();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      errorText.value = error.problem.status === 404 ? s.fileGone : error.message;
    }
  };
  useEffect(() => void loadText(), [file.blob]);
  const all = text.value ?? "";
  return (
    <>
      <p class="buttons"><a class="button" href={downloadUrl(file)} download={file.name}>{s.saveFile}</a><span class="note quiet">{s.size(file.size_bytes)}</span></p>
      {errorText.value && <p class="note wrong" role="alert">{errorText.value}</p>}
      {text.value === null && !errorText.value && <p role="status" class="note quiet">{s.loading}</p>}
      {text.value !== null && <pre class="whole" tabIndex={0} aria-label={s.output}>{all.slice(0, shownChars.value)}</pre>}
      {all.length > shownChars.value && <p class="buttons"><button type="button" onClick={() => (shownChars.value += CHUNK_CHARS)}>{s.showMore}</button></p>}
    </>
  );
}
