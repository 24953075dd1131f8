// Files that go with a message: chosen, pasted, or dropped anywhere on the page. Each is stored as soon as it is
// given, so that what cannot be sent is said before anything is, and stays with its conversation until it is sent.

import { computed, signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { newKey, Refused } from "../../core/api";
import type { IfBusy, Letter } from "../../core/outbox";
import type { StoredFile } from "../../core/protocol";
import { openChooser } from "./agent_model_button";
import { modelHere, shortModelHere } from "./agent_model";
import { Clip } from "../shared/icons";
import { api, current, models, offers, say } from "../app/store";
import { s } from "../text/index";

const FILES_MAX = 10;
const FILE_BYTES_MAX = 20_000_000;

/** A file on its way, stored (`id`), or not taken (`wrong` says why). */
interface Given {
  readonly key: string;
  readonly name: string;
  readonly id?: string;
  readonly media_type?: string;
  readonly anyway?: boolean;
  readonly wrong?: string;
}

/** What goes with a letter, as the server knows it. */
type Stored = Letter["attachments"][number];

/** Which files are given in which conversation; one that has not begun has no name. This tab keeps those that are stored. */
const KEPT = "holdfast.files";
const all = signal<ReadonlyMap<string, readonly Given[]>>(new Map(JSON.parse(sessionStorage.getItem(KEPT) ?? "[]") as [string, Given[]][]));
const here = () => current.value ?? "";
const given = computed<readonly Given[]>(() => all.value.get(here()) ?? []);

/** Somebody has sent a message whose files are on their way: it goes out once they are there. */
const sending = signal<{ readonly at: string; readonly if_busy: IfBusy } | null>(null);

/** Whoever has changed their mind, or lacks a file, sends again. */
function unsend(at: string): void {
  if (sending.value?.at === at) sending.value = null;
}

function put(at: string, files: readonly Given[]): void {
  const next = new Map(all.value);
  if (files.length) next.set(at, files);
  else next.delete(at);
  all.value = next;
  if (next.size) sessionStorage.setItem(KEPT, JSON.stringify([...next].map(([name, each]) => [name, each.filter(({ id }) => id)])));
  else sessionStorage.removeItem(KEPT);
}

/** Have a file be what has become of it, wherever it is by now; whatever was removed meanwhile stays away. */
function change(key: string, changes: Partial<Given>): void {
  for (const [at, files] of all.value) {
    if (!files.some((each) => each.key === key)) continue;
    if (changes.wrong) unsend(at);
    const isTwice = files.some((each) => each.key !== key && each.id && each.id === changes.id);
    put(at, isTwice ? files.filter((each) => each.key !== key) : files.map((each) => (each.key === key ? { ...each, ...changes } : each)));
  }
}

async function takeIn(file: File): Promise<void> {
  const key = newKey();
  const name = file.name || s.pastedName;
  const wrong = refusal(file, given.value);
  put(here(), [...given.value, { key, name, ...(wrong ? { wrong } : {}) }]);
  if (wrong) return unsend(here());
  try {
    const stored = await api.upload<StoredFile>(file, name);
    change(key, { id: stored.id, name: stored.name, media_type: stored.media_type });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    change(key, { wrong: error.message });
  }
}

/** The files of the conversation that is open. */
export const attaching = {
  given,
  /** Those that are stored and go with the message. */
  stored: (): Stored[] => given.value.flatMap(({ id, name, media_type, anyway }) => (id ? [{ id, name, ...(media_type ? { media_type } : {}), ...(anyway ? { anyway } : {}) }] : [])),
  /** Whether some are on their way: nothing is sent before they are there. */
  isUnderWay: () => given.value.some(isOnItsWay),
  /** Whether some are known not to be taken: nothing is sent until that has changed. */
  holds: () => unfit(given.value).length > 0,
  /** How the message that is written here is to be sent once its files are there; null where nobody has asked for that. */
  sends: () => (sending.value?.at === here() ? sending.value.if_busy : null),
  sendSoon: (if_busy: IfBusy) => void (sending.value = { at: here(), if_busy }),
  dontSend: () => void (sending.value = null),
  /** A message is sent as it was written, and from there: whoever goes elsewhere first finds it there, and is told so. */
  leave: (to: string | null) => {
    if (!sending.value || sending.value.at === to) return;
    sending.value = null;
    say(s.notSentYet);
  },
  add: (files: Iterable<File>) => {
    for (const file of files) void takeIn(file);
  },
  /** Have files here again that went with a message. */
  giveBack: (files: readonly Stored[]) => {
    const lacking = files.filter(({ id }) => !given.value.some((each) => each.id === id));
    put(here(), [...lacking.map((each) => ({ key: newKey(), ...each })), ...given.value]);
  },
  remove: (key: string) => {
    unsend(here());
    put(here(), given.value.filter((each) => each.key !== key));
  },
  /** Have the images here go also to a model that is not known to read images. */
  allow: () => put(here(), given.value.map((each) => (kindOf(each) === "image" ? { ...each, anyway: true } : each))),
  clear: () => put(here(), []),
  /** What was given before the conversation had begun goes on in it. */
  goOn: () => {
    const before = all.value.get("") ?? [];
    put("", []);
    put(here(), [...given.value, ...before]);
    if (sending.value?.at === "") sending.value = { ...sending.value, at: here() };
  },
};

export function forgetFiles(): void {
  all.value = new Map();
  sessionStorage.removeItem(KEPT);
}

function isOnItsWay({ id, wrong }: Given): boolean {
  return !id && !wrong;
}

/** Why a file is not even sent off. */
function refusal(file: File, others: readonly Given[]): string {
  if (others.filter((each) => !each.wrong).length >= FILES_MAX) return s.tooManyFiles(FILES_MAX);
  return file.size > FILE_BYTES_MAX ? s.tooLarge(s.size(file.size), s.size(FILE_BYTES_MAX)) : "";
}

/** The files that were given so far, and what is wrong with them. */
export function Files({ send }: { send: () => void }) {
  if (!given.value.length) return null;
  const used = modelUsed();
  const cannot = unfit(given.value);
  const pdfs = given.value.filter((each) => kindOf(each) === "pdf").length;
  return (
    <>
      <ul class="files" aria-label={s.attached}>
        {given.value.map((file) => (
          <li key={file.key} class={file.wrong ? "wrong" : ""} role={file.wrong ? "alert" : undefined}>
            <span>{file.name}{file.wrong ? `: ${file.wrong}` : isOnItsWay(file) ? <span role="status"> · {s.uploading}</span> : ""}</span>{" "}
            <button type="button" class="quiet" aria-label={`${s.remove} ${file.name}`} onClick={() => attaching.remove(file.key)}>×</button>
          </li>
        ))}
      </ul>
      {cannot.length > 0 && (
        <div class={used?.takes_guessed ? "note buttons" : "note wrong buttons"}>
          <span role="alert">{used?.takes_guessed ? s.notKnownToTake(shortModelHere.value) : s.cannotTake(shortModelHere.value, cannot)}</span>
          {used?.takes_guessed && <button type="button" onClick={() => { attaching.allow(); send(); }}>{s.sendAnyway}</button>}
          <button type="button" onClick={openChooser}>{s.changeModel}</button>
        </div>
      )}
      {pdfs > 0 && used && !used.takes.includes("pdf") && <p class="note quiet" role="status">{s.pdfAsText(shortModelHere.value, pdfs)}</p>}
    </>
  );
}

type Kind = keyof typeof s.fileKinds;

/** Return the model here, if it says which files it takes. */
function modelUsed() {
  return [...models.value, ...offers.value].find((each) => each.name === modelHere.value && each.takes.length);
}

/** Return the kinds of files that the model here does not take, and that are not sent anyway. */
function unfit(files: readonly Given[]): Kind[] {
  const used = modelUsed();
  if (!used) return [];
  const kinds = files.flatMap((each) => {
    const kind = kindOf(each);
    // Of a PDF file the text is sent.
    return !kind || kind === "pdf" || (kind === "image" && each.anyway && used.takes_guessed) ? [] : [kind];
  });
  return [...new Set(kinds)].filter((kind) => !used.takes.includes(kind));
}

function kindOf({ media_type }: Given): Kind | "pdf" | null {
  if (!media_type) return null;
  return media_type.startsWith("image/") ? "image" : media_type === "application/pdf" ? "pdf" : "text";
}

/** That the message goes out by itself, and the way to have it not do so. */
export function SendsSoon() {
  if (attaching.sends() === null) return null;
  const many = given.value.filter(isOnItsWay).length;
  return <p class="note buttons"><span role="status">{s.sendsSoon(many)}</span> <button type="button" onClick={attaching.dontSend}>{s.dontSendYet}</button></p>;
}

export function Choose() {
  return (
    <label class="quiet button" title={s.attach}>
      <Clip /><span class="unseen">{s.attach}</span>
      <input type="file" multiple class="unseen" onChange={(event) => { attaching.add([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ""; }} />
    </label>
  );
}

/** Take in files that are dropped, wherever on the page: a browser would else leave it to show them. */
export function Dropping() {
  const isOver = useSignal(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const over = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      isOver.value = true;
    };
    const drop = (event: DragEvent) => {
      isOver.value = false;
      if (!hasFiles(event)) return;
      event.preventDefault();
      attaching.add([...(event.dataTransfer?.files ?? [])]);
    };
    const leave = (event: DragEvent) => {
      if (!event.relatedTarget) isOver.value = false;
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
  return isOver.value ? <p class="note" role="status">{s.dropHere}</p> : null;
}
