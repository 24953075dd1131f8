// Where one writes: several lines, files, commands that begin with a slash, and what to do while an answer is
// being written. What is typed is kept for each conversation.

import { computed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../core/entries";
import type { IfBusy } from "../core/outbox";
import type { Draft } from "../core/protocol";
import { actions, attempt, slash } from "./actions";
import { asksForWords } from "./asking";
import { Chooser } from "./chooser";
import { called, Commands, completions, isPrompt } from "./commands";
import { prompts } from "./choosing";
import { send } from "./following";
import { Clip } from "./icons";
import { Spent } from "./spent";
import { api, current, open, say, tick } from "./state";
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
const asksNow = computed(() => (void tick.value, [...open.conversation.work.values()].some((work) => work.waiting === "question")));

function earlierMessages(): string[] {
  const turns = open.conversation.ordered().filter((turn) => turn.live);
  return turns.map((turn) => turn.entries.find((entry) => entry.role === "user")).flatMap((entry) => (entry ? [entry.parts.map((part) => (part.type === "text" ? part.text : "")).join("")] : []));
}

export function Composer() {
  const text = useSignal("");
  const files = useSignal<Attachment[]>([]);
  const uploading = useSignal(0);
  const back = useSignal(0);
  const marked = useSignal(-1);
  const looking = useRef(false);
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
    // What it holds, and its own edges: without them it would scroll by their width.
    node.style.height = `${Math.min(node.scrollHeight + node.offsetHeight - node.clientHeight, innerHeight * 0.4)}px`;
  }, [text.value, id]);

  // An answer has no files: with some, it is a message.
  const answering = files.value.length || uploading.value ? null : asksForWords.value;
  const compose = answering ? s.answerHere : s.compose;
  const submit = (if_busy: IfBusy) => {
    const words = text.value.trim();
    if (!words && !files.value.length) return;
    const command = called(words);
    if (answering && !(command && slash[command.name])) return void answer(answering, words);
    if (command && !prompts.value.some((each) => each.name === command.name)) {
      const run = slash[command.name];
      if (!run) return void perhaps(command.name, words, if_busy);
      run(command.rest);
    } else void send(words, if_busy, files.value);
    empty();
  };

  /** What is written stays where it is when it did not get there. */
  const answer = async ({ run_id, id: call }: Entry, words: string) => {
    if (looking.current) return;
    looking.current = true;
    const isThere = await actions.answer(run_id ?? "", call, { decision: "answer", text: words });
    looking.current = false;
    if (isThere) empty();
  };

  const empty = () => {
    text.value = "";
    files.value = [];
    back.value = 0;
    marked.value = -1;
  };

  /** Send what may call a prompt that this page has not heard of. */
  const perhaps = async (name: string, words: string, if_busy: IfBusy) => {
    if (looking.current) return;
    looking.current = true;
    const found = await isPrompt(name);
    looking.current = false;
    if (!found) return say(s.unknownCommand(name));
    void send(words, if_busy, files.value);
    empty();
  };

  const complete = (name: string) => {
    text.value = `/${name} `;
    marked.value = -1;
    area.current?.focus();
  };

  /** Keys that choose among what can follow a slash; whether it was one of them. */
  const pick = (event: KeyboardEvent): boolean => {
    const found = back.value ? [] : completions(text.value);
    if (!found.length) return false;
    const name = found[marked.value]?.name;
    if (event.key === "ArrowDown") marked.value = (marked.value + 1) % found.length;
    else if (event.key === "ArrowUp") marked.value = marked.value > 0 ? marked.value - 1 : found.length - 1;
    else if (event.key === "Enter" && name) complete(name);
    else if (event.key === "Tab" && !event.shiftKey && found[0]) complete(name ?? found[0].name);
    else return false;
    return true;
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
    if (pick(event)) return event.preventDefault();
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
      <Commands text={text.value} at={marked.value} choose={complete} />
      {(files.value.length > 0 || uploading.value > 0) && (
        <ul class="files">
          {files.value.map((file) => <li key={file.id}>{file.name} <button type="button" class="quiet" aria-label={`${s.remove} ${file.name}`} onClick={() => (files.value = files.value.filter((each) => each !== file))}>×</button></li>)}
          {uploading.value > 0 && <li role="status">{s.uploading}</li>}
        </ul>
      )}
      <textarea ref={area} rows={1} placeholder={compose} aria-label={compose} value={text.value}
        aria-activedescendant={marked.value >= 0 ? `command-${marked.value}` : undefined}
        onInput={(event) => { text.value = event.currentTarget.value; marked.value = -1; }} onKeyDown={press}
        onPaste={(event) => { const given = [...(event.clipboardData?.files ?? [])]; if (given.length) { event.preventDefault(); void attach(given); } }} />
      {waits && text.value.trim() && <p class="note" role="status">{answering ? s.answersAbove : asksNow.value ? s.leavesUnanswered : s.refusesFirst}</p>}
      <p class="buttons">
        <label class="quiet button" title={s.attach}>
          <Clip /><span class="unseen">{s.attach}</span>
          <input type="file" multiple class="unseen" onChange={(event) => { void attach(event.currentTarget.files ?? []); event.currentTarget.value = ""; }} />
        </label>
        <Chooser />
        <Spent />
        <span class="spread" />
        {busy && text.value.trim() && <button type="button" class="quiet" onClick={() => submit("steer")}>{s.tellNow}</button>}
        {busy && text.value.trim() && <button type="button" class="quiet" onClick={() => submit("interrupt")}>{s.stopAndSend}</button>}
        {(busy || waits) && <button type="button" class="stop" onClick={() => void actions.stop()}>{s.stop}</button>}
        {(!busy || text.value.trim()) && <button type="submit" class="strong" disabled={uploading.value > 0}>{answering ? s.answerIt : busy ? s.sendAfter : s.send}</button>}
      </p>
    </form>
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
