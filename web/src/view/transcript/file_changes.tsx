// The files that an answer changed, from what it found to what it left, and putting them back.

import { useSignal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Refused } from "../../core/api";
import type { ChangedFile, ChangedFiles, RestoredFiles } from "../../core/protocol";
import { inWords } from "../app/actions";
import { Counts, Diff } from "../shared/diff";
import { api, me, open, say, shape } from "../app/store";
import { s } from "../text/index";

/** `first` is the file that is shown at once. */
export function ChangeList({ run, first = "" }: { run: string; first?: string }) {
  void shape.value;
  const files = useSignal<readonly ChangedFile[] | null>(null);
  const leftOut = useSignal(0);
  const wrong = useSignal("");
  const busy = useSignal(false);
  const asked = useSignal<string | null>(null);
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
    trying(async () => {
      // A list that was cut does not name them all.
      const { restored } = await api.post<RestoredFiles>(`${at}/restore`, isAll && leftOut.value ? {} : { paths });
      say(s.areBack(restored.length, restored[0] ?? ""));
    });
  const back = open.conversation.course.restored.get(run) ?? new Set<string>();
  const mayRestore = me.value?.rights.includes("approve") ?? false;
  const rest = (files.value ?? []).filter((file) => file.kept && !back.has(file.path));
  const many = rest.length + leftOut.value;
  return (
    <div class="inside">
      {!files.value && !wrong.value && <p role="status" class="note quiet">{s.loading}</p>}
      <ul class="changes">{(files.value ?? []).map((file) => <File key={`${file.workspace} ${file.path}`} file={file} isBack={back.has(file.path)} isFirst={file.path === first} putBack={mayRestore && rest.length > 1 && <PutBack asked={asked} path={file.path} kind="quiet" busy={busy.value} restore={() => restore([file.path])} />} />)}</ul>
      {leftOut.value > 0 && <p class="note quiet">{s.moreFiles(leftOut.value)}</p>}
      {wrong.value && <p class="note wrong" role="alert">{wrong.value}</p>}
      {mayRestore && rest.length > 0 && <PutBack asked={asked} path={many > 1 ? "" : (rest[0]?.path ?? "")} many={many} busy={busy.value} restore={() => restore(rest.map((file) => file.path), true)} />}
    </div>
  );
}

interface PutBackProps {
  /** The path that is asked about, empty for all of them; null: nothing is asked. */
  asked: Signal<string | null>;
  path: string;
  many?: number;
  kind?: string;
  busy: boolean;
  restore: () => void;
}

/** Put a file back, or all of them: asks first, where the button was. */
function PutBack({ asked, path, many = 1, kind, busy, restore }: PutBackProps) {
  const box = useRef<HTMLSpanElement>(null);
  const isAsked = asked.value === path;
  const wasAsked = useRef(false);
  // The keyboard goes along, and comes back.
  useEffect(() => {
    if (isAsked !== wasAsked.current) box.current?.querySelector("button")?.focus({ preventScroll: true });
    wasAsked.current = isAsked;
  }, [isAsked]);
  const answer = (isWanted: boolean) => () => {
    asked.value = null;
    if (isWanted) restore();
  };
  if (!isAsked) {
    const text = path ? s.putBack : s.putAllBack;
    return <span class="buttons put-back" ref={box}><button type="button" class={kind} disabled={busy} aria-label={path ? `${text}: ${path}` : text} onClick={() => (asked.value = path)}>{text}</button></span>;
  }
  return (
    <span class="buttons put-back" role="group" ref={box}>
      <span>{s.putBackAsks(many, path)}</span>
      <button type="button" onClick={answer(true)}>{s.putBackIt}</button>
      <button type="button" class="quiet" onClick={answer(false)}>{s.cancel}</button>
    </span>
  );
}

function File({ file, isBack, isFirst, putBack }: { file: ChangedFile; isBack: boolean; isFirst: boolean; putBack: ComponentChildren }) {
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
        {file.kept && !isBack && putBack}
      </p>
      {isOpen.value && (file.diff ? <Diff text={file.diff} path={file.path} /> : <p class="note quiet">{s.noDifference}</p>)}
    </li>
  );
}
