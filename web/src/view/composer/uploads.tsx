// Attach files to a message: chosen, pasted, or dropped on the page. Each is uploaded at once, so that errors show
// before the message is sent, and stays with its session until it is sent.

import { computed, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { newIdempotencyKey, ApiError } from "../../core/api";
import type { IfBusy, OutgoingMessage } from "../../core/outbox";
import type { UploadedFile } from "../../core/protocol";
import { openAgentModelMenu } from "./agent_model_button";
import { currentModel, currentModelName } from "./agent_model";
import { AttachIcon } from "../shared/icons";
import { api, current, models, availableModels, showNotice } from "../app/store";
import { s } from "../text/index";

const FILES_MAX = 10;
const FILE_BYTES_MAX = 20_000_000;

/** A file that is uploading, stored (`id`), or rejected (`error` says why). */
interface Upload {
  readonly key: string;
  readonly name: string;
  readonly id?: string;
  readonly media_type?: string;
  readonly anyway?: boolean;
  readonly error?: string;
}

/** An attachment of a message, as the server knows it. */
type Attachment = OutgoingMessage["attachments"][number];

/** The uploads of each session; "" is a session that does not exist yet. This tab stores those that are uploaded. */
const STORAGE_KEY = "holdfast.files";
const uploadsBySession = signal<ReadonlyMap<string, readonly Upload[]>>(new Map(JSON.parse(sessionStorage.getItem(STORAGE_KEY) ?? "[]") as [string, Upload[]][]));
const sessionKey = () => current.value ?? "";
const uploads = computed<readonly Upload[]>(() => uploadsBySession.value.get(sessionKey()) ?? []);

/** A message that is to be sent once its files are uploaded. */
const autoSend = signal<{ readonly session: string; readonly if_busy: IfBusy } | null>(null);

/** Cancel automatic sending: the user changed the message, or a file failed. */
function cancelAutoSend(session: string): void {
  if (autoSend.value?.session === session) autoSend.value = null;
}

function setUploads(session: string, files: readonly Upload[]): void {
  const next = new Map(uploadsBySession.value);
  if (files.length) next.set(session, files);
  else next.delete(session);
  uploadsBySession.value = next;
  if (next.size) sessionStorage.setItem(STORAGE_KEY, JSON.stringify([...next].map(([name, each]) => [name, each.filter(({ id }) => id)])));
  else sessionStorage.removeItem(STORAGE_KEY);
}

/** Update an upload, whichever session has it. A removed one stays removed. */
function updateUpload(key: string, changes: Partial<Upload>): void {
  for (const [session, files] of uploadsBySession.value) {
    if (!files.some((each) => each.key === key)) continue;
    if (changes.error) cancelAutoSend(session);
    const isDuplicate = files.some((each) => each.key !== key && each.id && each.id === changes.id);
    setUploads(session, isDuplicate ? files.filter((each) => each.key !== key) : files.map((each) => (each.key === key ? { ...each, ...changes } : each)));
  }
}

async function uploadFile(file: File): Promise<void> {
  const key = newIdempotencyKey();
  const name = file.name || s.pastedName;
  const wrong = rejectionReason(file, uploads.value);
  setUploads(sessionKey(), [...uploads.value, { key, name, ...(wrong ? { error: wrong } : {}) }]);
  if (wrong) return cancelAutoSend(sessionKey());
  try {
    const stored = await api.upload<UploadedFile>(file, name);
    updateUpload(key, { id: stored.id, name: stored.name, media_type: stored.media_type });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    updateUpload(key, { error: error.message });
  }
}

/** The uploads of the current session. */
export const attachments = {
  uploads,
  /** Return the uploads that are stored. */
  stored: (): Attachment[] => uploads.value.flatMap(({ id, name, media_type, anyway }) => (id ? [{ id, name, ...(media_type ? { media_type } : {}), ...(anyway ? { anyway } : {}) }] : [])),
  /** Return whether some are uploading: the message waits for them. */
  isUploading: () => uploads.value.some(isUploadPending),
  /** Return whether the model cannot take some of the files: the message is not sent until that has changed. */
  isBlocked: () => unsupportedKinds(uploads.value).length > 0,
  /** Return how the message is to be sent once its files are uploaded; null if it is not. */
  autoSendMode: () => (autoSend.value?.session === sessionKey() ? autoSend.value.if_busy : null),
  sendWhenUploaded: (if_busy: IfBusy) => void (autoSend.value = { session: sessionKey(), if_busy }),
  cancelAutoSend: () => void (autoSend.value = null),
  /** Cancel automatic sending if the user leaves the session first, and say so. */
  leaveSession: (to: string | null) => {
    if (!autoSend.value || autoSend.value.session === to) return;
    autoSend.value = null;
    showNotice(s.notSentYet);
  },
  add: (files: Iterable<File>) => {
    for (const file of files) void uploadFile(file);
  },
  /** Attach the files of a message again. */
  restore: (files: readonly Attachment[]) => {
    const missing = files.filter(({ id }) => !uploads.value.some((each) => each.id === id));
    setUploads(sessionKey(), [...missing.map((each) => ({ key: newIdempotencyKey(), ...each })), ...uploads.value]);
  },
  remove: (key: string) => {
    cancelAutoSend(sessionKey());
    setUploads(sessionKey(), uploads.value.filter((each) => each.key !== key));
  },
  /** Send the images here even to a model that is not known to read images. */
  allowImages: () => setUploads(sessionKey(), uploads.value.map((each) => (fileKind(each) === "image" ? { ...each, anyway: true } : each))),
  clear: () => setUploads(sessionKey(), []),
  /** Move the uploads of the new session to the session that was created. */
  moveToNewSession: () => {
    const before = uploadsBySession.value.get("") ?? [];
    setUploads("", []);
    setUploads(sessionKey(), [...uploads.value, ...before]);
    if (autoSend.value?.session === "") autoSend.value = { ...autoSend.value, session: sessionKey() };
  },
};

export function clearStoredUploads(): void {
  uploadsBySession.value = new Map();
  sessionStorage.removeItem(STORAGE_KEY);
}

function isUploadPending({ id, error }: Upload): boolean {
  return !id && !error;
}

/** Return why a file is not uploaded, or "". */
function rejectionReason(file: File, others: readonly Upload[]): string {
  if (others.filter((each) => !each.error).length >= FILES_MAX) return s.tooManyFiles(FILES_MAX);
  return file.size > FILE_BYTES_MAX ? s.tooLarge(s.size(file.size), s.size(FILE_BYTES_MAX)) : "";
}

/** List the uploads and their errors. */
export function FileList({ send }: { send: () => void }) {
  if (!uploads.value.length) return null;
  const modelInfo = currentModelInfo();
  const unsupported = unsupportedKinds(uploads.value);
  const pdfs = uploads.value.filter((each) => fileKind(each) === "pdf").length;
  return (
    <>
      <ul class="files" aria-label={s.attached}>
        {uploads.value.map((file) => (
          <li key={file.key} class={file.error ? "wrong" : ""} role={file.error ? "alert" : undefined}>
            <span>{file.name}{file.error ? `: ${file.error}` : isUploadPending(file) ? <span role="status"> · {s.uploading}</span> : ""}</span>{" "}
            <button type="button" class="quiet" aria-label={`${s.remove} ${file.name}`} onClick={() => attachments.remove(file.key)}>×</button>
          </li>
        ))}
      </ul>
      {unsupported.length > 0 && (
        <div class={modelInfo?.takes_guessed ? "note buttons" : "note wrong buttons"}>
          <span role="alert">{modelInfo?.takes_guessed ? s.notKnownToTake(currentModelName.value) : s.cannotTake(currentModelName.value, unsupported)}</span>
          {modelInfo?.takes_guessed && <button type="button" onClick={() => { attachments.allowImages(); send(); }}>{s.sendAnyway}</button>}
          <button type="button" onClick={openAgentModelMenu}>{s.changeModel}</button>
        </div>
      )}
      {pdfs > 0 && modelInfo && !modelInfo.takes.includes("pdf") && <p class="note quiet" role="status">{s.pdfAsText(currentModelName.value, pdfs)}</p>}
    </>
  );
}

type FileKind = keyof typeof s.fileKinds;

/** Return the current model, if it says which files it takes. */
function currentModelInfo() {
  return [...models.value, ...availableModels.value].find((each) => each.name === currentModel.value && each.takes.length);
}

/** Return the kinds of files that the current model does not take and that are not sent anyway. */
function unsupportedKinds(files: readonly Upload[]): FileKind[] {
  const modelInfo = currentModelInfo();
  if (!modelInfo) return [];
  const kinds = files.flatMap((each) => {
    const kind = fileKind(each);
    // The server sends the text of a PDF file.
    return !kind || kind === "pdf" || (kind === "image" && each.anyway && modelInfo.takes_guessed) ? [] : [kind];
  });
  return [...new Set(kinds)].filter((kind) => !modelInfo.takes.includes(kind));
}

function fileKind({ media_type }: Upload): FileKind | "pdf" | null {
  if (!media_type) return null;
  return media_type.startsWith("image/") ? "image" : media_type === "application/pdf" ? "pdf" : "text";
}

/** Say that the message will be sent automatically, and offer to cancel that. */
export function AutoSendNotice() {
  if (attachments.autoSendMode() === null) return null;
  const count = uploads.value.filter(isUploadPending).length;
  return <p class="note buttons"><span role="status">{s.sendsSoon(count)}</span> <button type="button" onClick={attachments.cancelAutoSend}>{s.dontSendYet}</button></p>;
}

export function AttachButton() {
  return (
    <label class="quiet button" title={s.attach}>
      <AttachIcon /><span class="visually-hidden">{s.attach}</span>
      <input type="file" multiple class="visually-hidden" onChange={(event) => { attachments.add([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ""; }} />
    </label>
  );
}

/** Accept files that are dropped anywhere on the page. Otherwise the browser would leave the page to show them. */
export function DropZone() {
  const isDragging = useSignal(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const over = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      isDragging.value = true;
    };
    const drop = (event: DragEvent) => {
      isDragging.value = false;
      if (!hasFiles(event)) return;
      event.preventDefault();
      attachments.add([...(event.dataTransfer?.files ?? [])]);
    };
    const leave = (event: DragEvent) => {
      if (!event.relatedTarget) isDragging.value = false;
    };
    addEventListener("dragover", over);
    addEventListener("drop", drop);
    addEventListener("dragleave", leave);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("drop", drop);
      removeEventListener("dragleave", leave);
    };
  }, []);
  return isDragging.value ? <p class="note" role="status">{s.dropHere}</p> : null;
}
