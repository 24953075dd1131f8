// One turn: the user's message, the calls, the answer, and how it ended.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { Entry, Turn, RunProgress } from "../../core/transcript_types";
import { clock } from "../../core/format_time";
import { actions } from "../app/actions";
import { CopyButton } from "../shared/copy";
import { showDetails, selectEntry } from "../details/store";
import { AttachedFile } from "./attachments";
import { restoreFocus } from "../app/focus";
import { lazyComponent, lazyModules } from "../app/lazy";
import { Markdown } from "../shared/markdown";
import { AnsweredQuestion } from "../approvals/question";
import { formatCost } from "../composer/usage_meter";
import { chosenVersion, active } from "../app/store";
import { s } from "../text/index";
import { Memo } from "../shared/memo";
import { textOf, ToolGroup } from "./tool_calls";

const ChangeList = lazyComponent(async () => (await lazyModules.details()).ChangeList);
/** A question to the user is shown by itself, not among the calls. */
const ASK_USER = "ask_user";

type EntryGroup = { key: string; version: number; entries: Entry[] };

/** Return the entries in reading order, consecutive finished calls in one group. */
function groupEntries(turn: Turn): EntryGroup[] {
  const groups: EntryGroup[] = [];
  for (const entry of turn.entries) {
    const last = groups.at(-1);
    const isSameGroup = entry.role === "tool" && last?.entries[0]?.role === "tool" && entry.outcome && last.entries[0].outcome && ![entry, last.entries[0]].some(isQuestion);
    if (last && isSameGroup) {
      last.entries.push(entry);
      last.version = Math.max(last.version, entry.version);
    } else if (!hasNoText(entry)) groups.push({ key: entry.id, version: entry.role === "notice" ? turn.version : entry.version, entries: [entry] });
  }
  return groups;
}

/** Return whether an entry is a question. One that could not be asked is shown as a call. */
function isQuestion(entry: Entry): boolean {
  return entry.name === ASK_USER && entry.outcome !== "failed" && (entry.approval !== null || entry.outcome !== null);
}

/** Return whether a message has no text: it only made calls, or was cut off before its first word. */
function hasNoText(entry: Entry): boolean {
  if (entry.role !== "assistant" || entry.status === "streaming") return false;
  return entry.parts.every((part) => part.type === "tool_call" || ("text" in part && !part.text.trim()));
}

/** `offersRestore`: it is the first of the turns that one event removed. */
export function TurnView({ turn, offersRestore }: { turn: Turn; version: string; offersRestore: boolean }) {
  const run = turn.run_id ? active.conversation.runs.get(turn.run_id) : undefined;
  const groups = groupEntries(turn);
  const content = groups.map((piece) => <Memo key={piece.key} version={`${piece.version} ${turn.live}`} render={() => <EntryGroupView group={piece} turn={turn} />} />);
  const id = turn.id || `turn-${turn.turn}`;
  if (!turn.live) return <RemovedTurn id={id} turn={turn} offersRestore={offersRestore}>{content}</RemovedTurn>;
  return (
    <section class="turn" id={id}>
      {content}
      {turn.memories.length > 0 && <FromMemory texts={turn.memories} />}
      {run && ENDED.has(run.status) && <ChangedFiles turn={turn} run={run.id} version={turn.version} />}
      <TurnStatus turn={turn} run={run} />
    </section>
  );
}

const ENDED = new Set<RunProgress["status"]>(["completed", "cancelled", "failed", "interrupted"]);

/** List the files that a run changed, as far as its messages are loaded. */
function ChangedFiles({ turn, run }: { turn: Turn; run: string; version: number }) {
  const isOpen = useSignal(false);
  const paths = new Set(turn.entries.flatMap((entry) => (entry.run_id === run ? entry.parts : [])).flatMap((part) => (part.type === "change" ? [part.path] : [])));
  if (!paths.size) return null;
  const restored = active.conversation.meta.restoredFiles.get(run);
  const isRestored = restored !== undefined && [...paths].every((path) => restored.has(path));
  return (
    <div class="tools changed">
      <button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>{s.changedFiles(paths.size)}{isRestored && <span class="state-text"> · {s.isRestored}</span>}</button>
      {isOpen.value && <ChangeList run={run} />}
    </div>
  );
}

/** List the memories that were added to the context of an answer. */
function FromMemory({ texts }: { texts: readonly string[] }) {
  return (
    <details class="thinking from-memory">
      <summary>{s.memory.fromMemory(texts.length)}</summary>
      <ul>{texts.map((text) => <li key={text} class="words">{text}</li>)}</ul>
    </details>
  );
}

/** Focus the composer if the button, which disappears, was pressed by keyboard. */
function focusComposer(event: MouseEvent): void {
  if (!event.detail) restoreFocus();
}

/** A removed turn: collapsed, and still readable. */
function RemovedTurn({ id, turn, offersRestore, children }: { id: string; turn: Turn; offersRestore: boolean; children: ComponentChildren }) {
  const userMessage = turn.entries[0];
  return (
    <details class="turn gone" id={id}>
      <summary>
        {turn.removed ? s.removed : s.cleared} · <span class="words">{userMessage ? textOf(userMessage).slice(0, 80) : ""}</span>
        {turn.removed && turn.id && offersRestore && <button type="button" onClick={(event) => (event.preventDefault(), focusComposer(event), void actions.restore(turn.id))}>{s.restore}</button>}
      </summary>
      {children}
    </details>
  );
}

function EntryGroupView({ group, turn }: { group: EntryGroup; turn: Turn }) {
  const [entry] = group.entries;
  if (!entry) return null;
  if (isQuestion(entry)) return <AnsweredQuestion entry={entry} version={entry.version} />;
  if (entry.role === "tool") return <ToolGroup entries={group.entries} />;
  if (entry.role === "notice") return <RestartNotice entry={entry} turn={turn} />;
  return entry.role === "user" ? <UserMessage entry={entry} turn={turn} live={turn.live} /> : <AssistantMessage entry={entry} />;
}

function UserMessage({ entry, turn, live }: { entry: Entry; turn: Turn; live: boolean }) {
  const editing = useSignal(false);
  const text = textOf(entry);
  if (editing.value) return <EditMessageForm entry={entry} turn={turn} close={() => (editing.value = false)} />;
  return (
    <article class="user-message" id={entry.id} aria-label={s.you}>
      <div class="words">{text}</div>
      {entry.parts.map((part) => part.type === "file" && <AttachedFile key={part.blob} file={part} />)}
      {live && turn.id && (
        <p class="message-actions">
          {text && <CopyButton label={s.copyMessage} text={() => text} />}
          {entry.place === 0 && (
            <>
              <button type="button" class="quiet" onClick={() => (editing.value = true)}>{s.edit}</button>
              <button type="button" class="quiet" onClick={(event) => (focusComposer(event), void actions.undo(turn.id))}>{s.undoHere}</button>
              <button type="button" class="quiet" onClick={() => void actions.branch(turn.id)}>{s.branch}</button>
            </>
          )}
        </p>
      )}
    </article>
  );
}

function EditMessageForm({ entry, turn, close }: { entry: Entry; turn: Turn; close: () => void }) {
  const text = useSignal(textOf(entry));
  const files = entry.parts.flatMap((part) => (part.type === "file" ? [{ id: part.blob, name: part.name, ...(part.anyway ? { anyway: true } : {}) }] : []));
  const busy = useRef(false);
  const save = async () => {
    if (busy.current || (!text.value.trim() && !files.length)) return;
    busy.current = true;
    if (await actions.edit(turn.id, text.value, files)) close();
    busy.current = false;
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) void save();
    else return;
    event.preventDefault();
    // Keep Escape from stopping the running answer.
    event.stopPropagation();
  };
  return (
    <form class="user-message editing" onSubmit={(event) => (event.preventDefault(), void save())}>
      <textarea aria-label={s.edit} rows={Math.min(12, text.value.split("\n").length + 1)} value={text.value}
        ref={(node) => node?.focus()} onInput={(event) => (text.value = event.currentTarget.value)}
        onKeyDown={handleKey} />
      <p class="buttons"><button type="submit">{s.sendEdited}</button><button type="button" class="quiet" onClick={close}>{s.cancel}</button> <span class="note quiet">{s.editHelp}</span></p>
    </form>
  );
}

function AssistantMessage({ entry }: { entry: Entry }) {
  const live = entry.status === "streaming";
  return (
    <article class={entry.late ? "assistant-message late" : "assistant-message"} id={entry.id} aria-label={s.assistant} aria-busy={live}>
      {entry.late && <p class="note quiet">{s.late}</p>}
      {entry.parts.map((part, index) => {
        if (part.type === "text") return <Markdown key={index} text={part.text} live={live && index === entry.parts.length - 1} />;
        if (part.type === "reasoning" && part.text.trim()) return <Thinking key={index} text={part.text} live={live && index === entry.parts.length - 1} />;
        return null;
      })}
      {live && <span class="writing-cursor" role="img" aria-label={s.writing} />}
      {entry.status === "recovered" && <p class="note quiet">{s.notices.recovered}</p>}
    </article>
  );
}

function Thinking({ text, live }: { text: string; live: boolean }) {
  return (
    <details class="thinking">
      <summary>{live ? `${s.thinking}…` : s.thinking}</summary>
      <div class="words">{text}</div>
    </details>
  );
}

/** Show a restart as one line inside the answer. Earlier text does not move. */
function RestartNotice({ entry, turn }: { entry: Entry; turn: Turn }) {
  const after = turn.entries.find((other) => other.place > entry.place && other.role !== "notice");
  const run = entry.run_id ? active.conversation.runs.get(entry.run_id) : undefined;
  const status = entry.status as keyof typeof s.notices;
  const line = after
    ? [status === "interrupted" ? "" : s.notices[status], s.continued(clock(after.began_at || after.at))].filter(Boolean).join(" · ")
    : s.notices[status];
  return (
    <p class="hairline" id={entry.id}>
      <span>{line}</span>
      {!after && run?.status === "interrupted" && <button type="button" onClick={() => void actions.resume(run.id)}>{s.continueIt}</button>}
    </p>
  );
}

/** Switch between the versions of a message and its answer; disabled during a run, because that would cancel it. */
function VersionSwitch({ turn }: { turn: Turn }) {
  const versions = active.conversation.versionIds(turn);
  const index = versions.indexOf(turn.id);
  if (index < 0) return null;
  const isBusy = [...active.conversation.runs.values()].some((run) => !ENDED.has(run.status));
  const button = (label: string, sign: string, to: number) => {
    const id = versions[to];
    return (
      <button type="button" class="quiet" aria-label={label} aria-disabled={!id || isBusy} onClick={() => id && !isBusy && void actions.chooseVersion(id, label)}
        ref={(node) => void (chosenVersion.value?.turn === turn.id && chosenVersion.value.label === label && node && ((chosenVersion.value = null), node.focus()))}>{sign}</button>
    );
  };
  return (
    <span class="versions" role="group" aria-label={s.versions}>
      {button(s.versionBefore, "‹", index - 1)}<span>{index + 1}/{versions.length}</span>{button(s.versionAfter, "›", index + 1)}
    </span>
  );
}

/** Show the status of the run below its last message. */
function TurnStatus({ turn, run }: { turn: Turn; run: RunProgress | undefined }) {
  const answerActions = turn.id && <span class="answer-actions">{answerText(turn) && <CopyButton label={s.copyAnswer} text={() => answerText(turn)} />} <button type="button" class="quiet" onClick={() => void actions.retry(turn.id)}>{s.tryAgain}</button> <DetailsButton turn={turn} /> <VersionSwitch turn={turn} /></span>;
  // An answer that was copied into a branch has no run there; one without a model is a summary.
  if (!run) return turn.entries.some((entry) => entry.role === "assistant" && entry.model) ? <AnswerFooter turn={turn}>{answerActions}</AnswerFooter> : null;
  switch (run.status) {
    case "queued":
      if (hasEarlierRuns(run)) return <p class="note quiet">{run.steers ? s.steeringQueued : s.queued}</p>;
      return <p class="note quiet">{s.notAnsweredYet} <button type="button" onClick={() => void actions.resume(run.id)}>{s.answerNow}</button></p>;
    case "failed":
      return <p class="note wrong" role="alert">{run.failure?.detail ?? s.failed} {answerActions}</p>;
    case "cancelled":
      return <p class="note quiet">{s.stopped} {answerActions}</p>;
    case "waiting":
      return run.waiting === "limit" ? <p class="note">{s.paused(run.detail)} <button type="button" onClick={() => void actions.resume(run.id)}>{s.continueIt}</button></p> : null;
    case "completed":
      return <AnswerFooter turn={turn} run={run}>{answerActions}</AnswerFooter>;
    case "accepted":
    case "running": {
      const last = turn.entries.at(-1);
      if (run.retrying) return <p class="note">{s.retrying(run.retrying)}</p>;
      return last?.role === "assistant" && last.status === "streaming" ? null : <p class="note quiet">{s.working}</p>;
    }
    default:
      return null;
  }
}

/** Return the answer as Markdown: its messages as paragraphs, joined directly where one continues after a restart. */
function answerText(turn: Turn): string {
  return turn.entries.reduce((before, entry) => {
    const text = entry.role === "assistant" && !entry.late ? textOf(entry) : "";
    return before + (before && text && !entry.continues ? "\n\n" : "") + text;
  }, "").trim();
}

/** Show the details of an answer. */
function DetailsButton({ turn }: { turn: Turn }) {
  const showAnswerDetails = () => {
    selectEntry((turn.entries.findLast((entry) => entry.role === "assistant") ?? turn.entries[0])?.id ?? "");
    showDetails(true);
  };
  return <button type="button" class="quiet" aria-label={s.details.ofAnswer} onClick={showAnswerDetails}>{s.details.title}</button>;
}

function hasEarlierRuns(run: RunProgress): boolean {
  return [...active.conversation.runs.values()].some((other) => other.turn < run.turn && ["accepted", "running", "waiting", "queued"].includes(other.status));
}

function AnswerFooter({ turn, run, children }: { turn: Turn; run?: RunProgress; children: ComponentChildren }) {
  const model = turn.entries.findLast((entry) => entry.model)?.model ?? "";
  const time = run?.started_at && run.ended_at ? (run.ended_at - run.started_at) / 1_000 : 0;
  const isUsed = run && run.input_tokens + run.output_tokens > 0;
  const facts = [
    model, isUsed ? s.tokens(run.input_tokens, run.output_tokens, run.cached_tokens, run.estimated_tokens) : "",
    isUsed ? formatCost(run.cost_micros, model) : "", time ? s.took(time) : "",
  ].filter(Boolean);
  return <p class="footer">{facts.join(" · ")} {children}</p>;
}
