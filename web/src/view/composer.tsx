// Where one writes: several lines, files, commands that begin with a slash, and what to do while an answer is
// being written. What is typed is kept for each conversation.

import { computed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { IfBusy } from "../core/outbox";
import type { Draft } from "../core/protocol";
import { actions, attempt, slash } from "./actions";
import { send } from "./following";
import { Clip } from "./icons";
import { api, current, model, open, say, tick } from "./state";
import { s } from "./strings";

interface Attachment {
  id: string;
  name: string;
}

const DRAFT_MS = 800;

function isAnyOf(...statuses: string[]): boolean {
  void tick.value;
  return [...open.conversation.work.values()].some((work) => statuses.includes(work.status));
}

// What is typed in is drawn again when these change, not with every word of an answer.
const busyNow = computed(() => isAnyOf("accepted", "running"));
const waitsNow = computed(() => isAnyOf("waiting"));

function earlierMessages(): string[] {
  const turns = open.conversation.ordered().filter((turn) => turn.live);
  return turns.map((turn) => turn.entries.find((entry) => entry.role === "user")).flatMap((entry) => (entry ? [entry.parts.map((part) => (part.type === "text" ? part.text : "")).join("")] : []));
}

export function Composer() {
  const text = useSignal("");
  const files = useSignal<Attachment[]>([]);
  const uploading = useSignal(0);
  const back = useSignal(0);
  const area = useRef<HTMLTextAreaElement>(null);
  const id = current.value;
  useDraft(id, text);

  useEffect(() => {
    area.current?.focus();
    files.value = [];
    back.value = 0;
  }, [id]);
  useEffect(() => {
    const node = area.current;
    if (!node) return;
    node.style.height = "auto";
    node.style.height = `${Math.min(node.scrollHeight, innerHeight * 0.4)}px`;
  }, [text.value, id]);

  const submit = (if_busy: IfBusy) => {
    const words = text.value.trim();
    if (!words && !files.value.length) return;
    const command = /^\/(\w+)\s*(.*)$/s.exec(words);
    if (command?.[1]) {
      const run = slash[command[1]];
      if (run) run(command[2] ?? "");
      else return say(s.unknownCommand(command[1]));
    } else void send(words, if_busy, files.value);
    text.value = "";
    files.value = [];
    back.value = 0;
  };

  const attach = async (given: Iterable<File>) => {
    for (const file of given) {
      uploading.value += 1;
      await attempt(async () => {
        const { id: blob, name } = await api.upload<Attachment>(file, file.name || "pasted.png");
        files.value = [...files.value, { id: blob, name }];
      });
      uploading.value -= 1;
    }
  };

  const press = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      return submit(event.altKey ? "steer" : "queue");
    }
    const history = earlierMessages();
    if (event.key === "ArrowUp" && (text.value === "" || back.value > 0) && back.value < history.length) {
      event.preventDefault();
      back.value += 1;
      text.value = history.at(-back.value) ?? "";
    } else if (event.key === "ArrowDown" && back.value > 0) {
      event.preventDefault();
      back.value -= 1;
      text.value = back.value ? (history.at(-back.value) ?? "") : "";
    }
  };

  const busy = busyNow.value;
  const waits = waitsNow.value;
  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), submit("queue"))}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => (event.preventDefault(), void attach(event.dataTransfer?.files ?? []))}>
      <Commands text={text.value} choose={(name) => { text.value = `/${name} `; area.current?.focus(); }} />
      {(files.value.length > 0 || uploading.value > 0) && (
        <ul class="files">
          {files.value.map((file) => <li key={file.id}>{file.name} <button type="button" class="quiet" aria-label={`${s.remove} ${file.name}`} onClick={() => (files.value = files.value.filter((each) => each !== file))}>×</button></li>)}
          {uploading.value > 0 && <li role="status">{s.uploading}</li>}
        </ul>
      )}
      <textarea ref={area} rows={1} placeholder={s.compose} aria-label={s.compose} value={text.value}
        onInput={(event) => (text.value = event.currentTarget.value)} onKeyDown={press}
        onPaste={(event) => { const given = [...(event.clipboardData?.files ?? [])]; if (given.length) { event.preventDefault(); void attach(given); } }} />
      {waits && text.value.trim() && <p class="note" role="status">{s.refusesFirst}</p>}
      <p class="buttons">
        <label class="quiet button" title={s.attach}>
          <Clip /><span class="unseen">{s.attach}</span>
          <input type="file" multiple class="unseen" onChange={(event) => { void attach(event.currentTarget.files ?? []); event.currentTarget.value = ""; }} />
        </label>
        <span class="note quiet model">{model.value?.name}</span>
        <span class="spread" />
        {busy && text.value.trim() && <button type="button" class="quiet" onClick={() => submit("steer")}>{s.tellNow}</button>}
        {busy && text.value.trim() && <button type="button" class="quiet" onClick={() => submit("interrupt")}>{s.stopAndSend}</button>}
        {(busy || waits) && <button type="button" class="stop" onClick={() => void actions.stop()}>{s.stop}</button>}
        {(!busy || text.value.trim()) && <button type="submit" class="strong" disabled={uploading.value > 0}>{busy ? s.sendAfter : s.send}</button>}
      </p>
    </form>
  );
}

/** What can follow a slash, while one is typed. */
function Commands({ text, choose }: { text: string; choose: (name: string) => void }) {
  const typed = /^\/(\w*)$/.exec(text)?.[1];
  if (typed === undefined) return null;
  const found = Object.entries(s.commands).filter(([name]) => name.startsWith(typed));
  if (!found.length) return null;
  return (
    <ul class="menu commands" role="listbox" aria-label={s.palette}>
      {found.map(([name, what]) => <li key={name} role="option" aria-selected="false"><button type="button" onClick={() => choose(name)}><b>/{name}</b> {what}</button></li>)}
    </ul>
  );
}

/** A draft is kept on the server for each conversation, and comes back wherever one opens it. */
function useDraft(id: string | null, text: { value: string }): void {
  const kept = useRef("");
  const written = useRef("");
  written.current = text.value;
  const keep = useRef(() => undefined as void);
  keep.current = () => {
    if (!id || written.current === kept.current) return;
    kept.current = written.current;
    void api.post(`api/sessions/${id}/draft`, { text: written.current }).catch(() => undefined);
  };
  // Before anything can be typed: what is typed first is not taken away.
  useLayoutEffect(() => {
    text.value = written.current = kept.current = "";
    if (!id) return;
    void api.get<Draft>(`api/sessions/${id}/draft`).then((draft) => {
      if (current.value === id && !text.value) text.value = kept.current = draft.text;
    }, () => undefined);
    // Whoever leaves within the moment that a draft waits to be kept keeps it, too.
    const mine = keep.current;
    addEventListener("pagehide", mine);
    return () => {
      removeEventListener("pagehide", mine);
      mine();
    };
  }, [id]);
  useEffect(() => {
    if (!id || text.value === kept.current) return;
    const timer = setTimeout(() => keep.current(), DRAFT_MS);
    return () => clearTimeout(timer);
  });
}
