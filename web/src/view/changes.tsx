// The files that an answer changed, from what it found to what it left, and putting them back.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Refused } from "../core/api";
import type { ChangedFile, ChangedFiles, RestoredFiles } from "../core/protocol";
import { inWords } from "./actions";
import { Counts, Diff } from "./diff";
import { api, ask, me, open, say, shape } from "./state";
import { s } from "./strings";

/** `first` is the file that is shown at once. */
export function ChangeList({ run, first = "" }: { run: string; first?: string }) {
  void shape.value;
  const files = useSignal<readonly ChangedFile[] | null>(null);
  const leftOut = useSignal(0);
  const wrong = useSignal("");
  const busy = useSignal(false);
  const at = `api/runs/${run}/changes`;
  const trying = async (work: () => Promise<void>) => {
    wrong.value = "";
    busy.value = true;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      const { code, detail } = error.problem;
      wrong.value = code === "files_changed" ? detail : code === "run_refused" ? s.underWay : inWords(error);
    } finally {
      busy.value = false;
    }
  };
  const read = async () => {
    const { changes, left_out } = await api.get<ChangedFiles>(at);
    files.value = changes;
    leftOut.value = left_out;
  };
  useEffect(() => void trying(read), [run]);
  const restore = (paths: readonly string[], isAll = false) =>
    ask(
      s.putBackAsks(paths.length + (isAll ? leftOut.value : 0), paths[0] ?? ""),
      {
        text: s.putBackIt,
        run: () =>
          trying(async () => {
            // A list that was cut does not name them all.
            const { restored } = await api.post<RestoredFiles>(`${at}/restore`, isAll && leftOut.value ? {} : { paths });
            say(s.areBack(restored.length));
          }),
      },
      { text: s.cancel, run: () => undefined },
    );
  const back = open.conversation.course.restored.get(run) ?? new Set<string>();
  const mayRestore = me.value?.rights.includes("approve") ?? false;
  const rest = (files.value ?? []).filter((file) => file.kept && !back.has(file.path));
  return (
    <div class="inside">
      {!files.value && !wrong.value && <p role="status" class="note quiet">{s.loading}</p>}
      <ul class="changes">{(files.value ?? []).map((file) => <File key={`${file.workspace} ${file.path}`} file={file} isBack={back.has(file.path)} isFirst={file.path === first} restore={mayRestore && !busy.value && rest.length > 1 ? () => restore([file.path]) : null} />)}</ul>
      {leftOut.value > 0 && <p class="note quiet">{s.moreFiles(leftOut.value)}</p>}
      {wrong.value && <p class="note wrong" role="alert">{wrong.value}</p>}
      {mayRestore && rest.length > 0 && <p class="buttons"><button type="button" disabled={busy.value} onClick={() => restore(rest.map((file) => file.path), true)}>{rest.length > 1 ? s.putAllBack : s.putBack}</button></p>}
    </div>
  );
}

function File({ file, isBack, isFirst, restore }: { file: ChangedFile; isBack: boolean; isFirst: boolean; restore: (() => void) | null }) {
  const isOpen = useSignal(isFirst);
  const button = useRef<HTMLButtonElement>(null);
  // Whoever pressed it before it was here goes on from it.
  useEffect(() => {
    if (isFirst && document.activeElement === document.body) button.current?.focus({ preventScroll: true });
  }, []);
  const what = isBack ? s.isBack : !file.kept ? s.cannotPutBack : !file.before ? s.isNew : !file.after ? s.isRemoved : "";
  return (
    <li>
      <p class="buttons">
        <button type="button" class="fold" ref={button} aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
          <code>{file.path}</code> <Counts added={file.added} removed={file.removed} />{what && <span class="said"> · {what}</span>}
        </button>
        <span class="spread" />
        {restore && file.kept && !isBack && <button type="button" class="quiet" aria-label={`${s.putBack}: ${file.path}`} onClick={restore}>{s.putBack}</button>}
      </p>
      {isOpen.value && (file.diff ? <Diff text={file.diff} path={file.path} /> : <p class="note quiet">{s.noDifference}</p>)}
    </li>
  );
}
