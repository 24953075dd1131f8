// Files that go with a message: chosen, pasted, or dropped anywhere on the page. Each is stored as soon as it is
// given, so that what cannot be sent is said before anything is.

import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { newKey, Refused } from "../core/api";
import type { StoredFile } from "../core/protocol";
import { modelHere } from "./choosing";
import { Clip } from "./icons";
import { api, models } from "./state";
import { s } from "./strings";

const FILES_MAX = 10;
const FILE_BYTES_MAX = 20_000_000;

/** A file on its way, stored (`id`), or not taken (`wrong` says why). */
interface Given {
  readonly key: string;
  readonly name: string;
  readonly id?: string;
  readonly media_type?: string;
  readonly wrong?: string;
}

export interface Attaching {
  given: Signal<readonly Given[]>;
  /** Those that are stored and go with the message. */
  stored: () => { id: string; name: string }[];
  isUploading: () => boolean;
  add: (files: Iterable<File>) => void;
  remove: (key: string) => void;
  clear: () => void;
}

export function useAttaching(): Attaching {
  const given = useSignal<readonly Given[]>([]);
  // Whatever was removed, or left behind with its conversation, stays away when it has come through.
  const change = (key: string, changes: Partial<Given>) => (given.value = given.value.map((each) => (each.key === key ? { ...each, ...changes } : each)));
  const takeIn = async (file: File) => {
    const key = newKey();
    const name = file.name || s.pastedName;
    const wrong = refusal(file, given.value);
    given.value = [...given.value, { key, name, ...(wrong ? { wrong } : {}) }];
    if (wrong) return;
    try {
      const stored = await api.upload<StoredFile>(file, name);
      if (given.value.some((each) => each.id === stored.id)) given.value = given.value.filter((each) => each.key !== key);
      else change(key, { id: stored.id, name: stored.name, media_type: stored.media_type });
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      change(key, { wrong: error.message });
    }
  };
  return {
    given,
    stored: () => given.value.flatMap(({ id, name }) => (id ? [{ id, name }] : [])),
    isUploading: () => given.value.some(isOnItsWay),
    add: (files) => {
      for (const file of files) void takeIn(file);
    },
    remove: (key) => (given.value = given.value.filter((each) => each.key !== key)),
    clear: () => (given.value = []),
  };
}

function isOnItsWay({ id, wrong }: Given): boolean {
  return !id && !wrong;
}

/** Why a file is not even sent off. */
function refusal(file: File, given: readonly Given[]): string {
  if (given.filter((each) => !each.wrong).length >= FILES_MAX) return s.tooManyFiles(FILES_MAX);
  return file.size > FILE_BYTES_MAX ? s.tooLarge(s.size(file.size), s.size(FILE_BYTES_MAX)) : "";
}

/** The files that were given so far, and what is wrong with them. */
export function Files({ attaching }: { attaching: Attaching }) {
  const given = attaching.given.value;
  if (!given.length) return null;
  const cannot = unfit(given);
  return (
    <>
      <ul class="files" aria-label={s.attached}>
        {given.map((file) => (
          <li key={file.key} class={file.wrong ? "wrong" : ""} role={file.wrong ? "alert" : undefined}>
            {file.name}{file.wrong ? `: ${file.wrong}` : isOnItsWay(file) ? <span role="status"> · {s.uploading}</span> : ""}{" "}
            <button type="button" class="quiet" aria-label={`${s.remove} ${file.name}`} onClick={() => attaching.remove(file.key)}>×</button>
          </li>
        ))}
      </ul>
      {cannot.length > 0 && <p class="note wrong" role="alert">{s.cannotTake(modelHere.value, cannot)}</p>}
    </>
  );
}

type Kind = keyof typeof s.fileKinds;

/** What is among the files that the model here is known not to take. */
function unfit(given: readonly Given[]): Kind[] {
  const used = models.value.find((each) => each.name === modelHere.value);
  if (!used?.takes.length) return [];
  const kinds = given.flatMap(({ media_type }) => (media_type ? [kindOf(media_type)] : []));
  return [...new Set(kinds)].filter((kind) => !used.takes.includes(kind));
}

function kindOf(media_type: string): Kind {
  return media_type.startsWith("image/") ? "image" : media_type === "application/pdf" ? "pdf" : "text";
}

export function Choose({ attaching }: { attaching: Attaching }) {
  return (
    <label class="quiet button" title={s.attach}>
      <Clip /><span class="unseen">{s.attach}</span>
      <input type="file" multiple class="unseen" onChange={(event) => { attaching.add([...(event.currentTarget.files ?? [])]); event.currentTarget.value = ""; }} />
    </label>
  );
}

/** Take in files that are dropped, wherever on the page: a browser would else leave it to show them. */
export function Dropping({ attaching }: { attaching: Attaching }) {
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
