// Files in a conversation: pictures are shown, text that a tool printed is opened here, the rest is saved.

import { signal } from "@preact/signals";
import type { FilePart } from "../../core/protocol";
import { base, panel } from "../app/store";
import { s } from "../text/index";

/** The text that lies over the page while the panel `output` is open. */
export const opened = signal<FilePart | null>(null);

export function addressOf(file: FilePart): string {
  return `${base}api/files/${file.blob}?name=${encodeURIComponent(file.name)}`;
}

export function Attached({ file }: { file: FilePart }) {
  const href = `${base}api/files/${file.blob}`;
  if (file.media_type.startsWith("image/")) return <a href={href} target="_blank" rel="noopener"><img class="attached" src={href} alt={file.name} loading="lazy" /></a>;
  return <a class="attached" href={href} download={file.name}>{file.name}</a>;
}

/** What came of a call and was too long to be shown, or is no text. */
export function Result({ file }: { file: FilePart }) {
  if (!file.media_type.startsWith("text/")) return <Attached file={file} />;
  const show = () => {
    opened.value = file;
    panel.value = "output";
  };
  return <p class="buttons"><button type="button" onClick={show}>{s.openAll}</button><span class="note quiet">{s.size(file.size_bytes)}</span></p>;
}
