// Files in a conversation: show images, open the text of tools, save the rest.

import { signal } from "@preact/signals";
import type { FilePart } from "../../core/protocol";
import { base, panel } from "../app/store";
import { s } from "../text/index";

/** The file that the panel `output` shows. */
export const openedFile = signal<FilePart | null>(null);

export function downloadUrl(file: FilePart): string {
  return `${base}api/files/${file.blob}?name=${encodeURIComponent(file.name)}`;
}

export function AttachedFile({ file }: { file: FilePart }) {
  const href = `${base}api/files/${file.blob}`;
  if (file.media_type.startsWith("image/")) return <a href={href} target="_blank" rel="noopener"><img class="attached" src={href} alt={file.name} loading="lazy" /></a>;
  return <a class="attached" href={href} download={file.name}>{file.name}</a>;
}

/** Show a result that is too long to be inline, or is no text. */
export function ResultFile({ file }: { file: FilePart }) {
  if (!file.media_type.startsWith("text/")) return <AttachedFile file={file} />;
  const show = () => {
    openedFile.value = file;
    panel.value = "output";
  };
  return <p class="buttons"><button type="button" onClick={show}>{s.openAll}</button><span class="note quiet">{s.size(file.size_bytes)}</span></p>;
}
