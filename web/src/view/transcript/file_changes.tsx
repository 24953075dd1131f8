// The files that an answer changed: their diffs, and restoring them.

import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { ChangedFile, ChangedFiles, RestoredFiles } from "../../core/protocol";
import { describeError } from "../app/actions";
import { ChangeCounts, Diff } from "../shared/diff";
import { api, me, active, showNotice, structureVersion } from "../app/store";
import { s } from "../text/index";

/** `first` is the file that is open at first. */
export function ChangeList({ run, first = "" }: { run: string; first?: string }) {
  void structureVersion.value;
  const files = useSignal<readonly ChangedFile[] | null>(null);
  const leftOut = useSignal(0);
  const errorText = useSignal("");
  const busy = useSignal(false);
  const confirming = useSignal<string | null>(null);
  const changesPath = `api/runs/${run}/changes`;
  const runRequest = async (request: () => Promise<void>) => {
    errorText.value = "";
    busy.value = true;
    try {
      await request();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const { code, detail } = error.problem;
      errorText.value = code === "files_changed" ? detail : code === "run_refused" ? s.underWay : describeError(error);
    } finally {
      busy.value = false;
    }
  };
  const loadChanges = async () => {
    const { changes, left_out } = await api.get<ChangedFiles>(changesPath);
    files.value = changes;
    leftOut.value = left_out;
  };
  useEffect(() => void runRequest(loadChanges), [run]);
  const restore = (paths: readonly string[], isAll = false) =>
    runRequest(async () => {
      // A shortened list does not name all files, so the request names none.
      const { restored } = await api.post<RestoredFiles>(`${changesPath}/restore`, isAll && leftOut.value ? {} : { paths });
      showNotice(s.filesRestored(restored.length, restored[0] ?? ""));
    });
  const restored = active.conversation.meta.restoredFiles.get(run) ?? new Set<string>();
  const canRestore = me.value?.rights.includes("approve") ?? false;
  const restorable = (files.value ?? []).filter((file) => file.kept && !restored.has(file.path));
  const count = restorable.length + leftOut.value;
  return (
    <div class="inside">
      {!files.value && !errorText.value && <p role="status" class="note quiet">{s.loading}</p>}
      <ul class="changes">{(files.value ?? []).map((file) => <ChangedFileRow key={`${file.workspace} ${file.path}`} file={file} isRestored={restored.has(file.path)} isInitiallyOpen={file.path === first} restoreButton={canRestore && restorable.length > 1 && <RestoreButton confirming={confirming} path={file.path} buttonClass="quiet" busy={busy.value} restore={() => restore([file.path])} />} />)}</ul>
      {leftOut.value > 0 && <p class="note quiet">{s.moreFiles(leftOut.value)}</p>}
      {errorText.value && <p class="note wrong" role="alert">{errorText.value}</p>}
      {canRestore && restorable.length > 0 && <RestoreButton confirming={confirming} path={count > 1 ? "" : (restorable[0]?.path ?? "")} count={count} busy={busy.value} restore={() => restore(restorable.map((file) => file.path), true)} />}
    </div>
  );
}

interface RestoreButtonProps {
  /** The path to be confirmed, empty for all of them; null: none. */
  confirming: Signal<string | null>;
  path: string;
  count?: number;
  buttonClass?: string;
  busy: boolean;
  restore: () => void;
}

/** Restore a file, or all of them, after a confirmation in place of the button. */
function RestoreButton({ confirming, path, count = 1, buttonClass, busy, restore }: RestoreButtonProps) {
  const container = useRef<HTMLSpanElement>(null);
  const isConfirming = confirming.value === path;
  const wasConfirming = useRef(false);
  // Move the focus to the confirmation, and back.
  useEffect(() => {
    if (isConfirming !== wasConfirming.current) container.current?.querySelector("button")?.focus({ preventScroll: true });
    wasConfirming.current = isConfirming;
  }, [isConfirming]);
  const answer = (isConfirmed: boolean) => () => {
    confirming.value = null;
    if (isConfirmed) restore();
  };
  if (!isConfirming) {
    const text = path ? s.restoreFile : s.restoreFiles;
    return <span class="buttons put-back" ref={container}><button type="button" class={buttonClass} disabled={busy} aria-label={path ? `${text}: ${path}` : text} onClick={() => (confirming.value = path)}>{text}</button></span>;
  }
  return (
    <span class="buttons put-back" role="group" ref={container}>
      <span>{s.restoreFilesQuestion(count, path)}</span>
      <button type="button" onClick={answer(true)}>{s.restoreFilesConfirm}</button>
      <button type="button" class="quiet" onClick={answer(false)}>{s.cancel}</button>
    </span>
  );
}

function ChangedFileRow({ file, isRestored, isInitiallyOpen, restoreButton }: { file: ChangedFile; isRestored: boolean; isInitiallyOpen: boolean; restoreButton: ComponentChildren }) {
  const isOpen = useSignal(isInitiallyOpen);
  const button = useRef<HTMLButtonElement>(null);
  // Take the focus over from the button that this row replaces.
  useEffect(() => {
    if (isInitiallyOpen && document.activeElement === document.body) button.current?.focus({ preventScroll: true });
  }, []);
  const status = isRestored ? s.isRestored : !file.kept ? s.cannotRestore : !file.before ? s.isNew : !file.after ? s.isRemoved : "";
  return (
    <li>
      <p class="buttons">
        <button type="button" class="fold" ref={button} aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
          <code>{file.path}</code> <ChangeCounts added={file.added} removed={file.removed} />{status && <span class="state-text"> · {status}</span>}
        </button>
        <span class="spacer" />
        {file.kept && !isRestored && restoreButton}
      </p>
      {isOpen.value && (file.diff ? <Diff text={file.diff} path={file.path} /> : <p class="note quiet">{s.noDifference}</p>)}
    </li>
  );
}
