// Details of a session: the current run, agent and model, usage, queued messages, changed and attached files.

import { useComputed, useSignal } from "@preact/signals";
import type { Entry, Turn } from "../../core/transcript_types";
import { attachedFiles, fileChanges, ranCommand, findActiveRun } from "../../core/turn_queries";
import { age, clock, date } from "../../core/format_time";
import { ChangeList } from "../transcript/file_changes";
import { MAIN_AGENT, currentModel } from "../composer/agent_model";
import { ChangeCounts } from "../shared/diff";
import { AttachedFile } from "../transcript/attachments";
import { loadEarlier, PAGE_SIZE_MAX } from "../app/session_sync";
import { memoryStatusText } from "../memory/memory_status";
import { contextTokens, formatCost, lastModel } from "../composer/usage_meter";
import { outgoingMessages, now, active, session, structureVersion, tick, windowTokens } from "../app/store";
import { s } from "../text/index";
import { textOf } from "../transcript/tool_calls";
import { CallLine } from "./call_details";
import { DefinitionList, Section } from "./definition_list";
import { selectEntry } from "./store";

const TAIL_LINES = 12;
const TAIL_CHARS = 4_000;
const EXCERPT_CHARS = 120;
const FILES_SHOWN = 8;

// Entries and turns are mutable: components that show one render with every event except appended text.

export function SessionDetails() {
  void structureVersion.value;
  const turns = active.conversation.orderedTurns();
  const changed = turns.filter((turn) => turn.live && turn.run_id && fileChanges(turn).length > 0);
  const files = attachedFiles(turns);
  const isPart = active.conversation.earlierCursor !== null;
  return (
    <>
      <CurrentRun />
      <Section title={s.details.answeredBy}><SessionFacts /></Section>
      <Section title={s.details.used}><UsageFacts /></Section>
      <MessageQueue />
      <Section title={s.details.changed}>
        {changed.map((turn) => <TurnChanges key={turn.turn} turn={turn} />)}
        {turns.some((turn) => turn.live && ranCommand(turn)) ? <p class="note quiet">{s.details.unlisted}</p> : !changed.length && <p class="note quiet">{s.details.none}</p>}
      </Section>
      <Section title={s.details.attached}>
        {files.length ? <ul class="attachments">{files.map((file) => <li key={file.blob}><AttachedFile file={file} /> <span class="note quiet">{s.size(file.size_bytes)}</span></li>)}</ul> : <p class="note quiet">{s.details.none}</p>}
      </Section>
      {isPart && <LoadEarlierButton />}
    </>
  );
}

function CurrentRun() {
  void structureVersion.value;
  const activeRun = findActiveRun(active.conversation.runs.values(), active.conversation.turns);
  if (!activeRun) return null;
  const { work: run, running } = activeRun;
  return (
    <Section title={s.details.now}>
      {running.map((entry) => <div key={entry.id}><CallLine entry={entry} /><OutputTail id={entry.id} /></div>)}
      {!running.length && <p>{run.status === "waiting" ? s.details.waits : s.details.writes}</p>}
      {run.started_at && <p class="note quiet">{s.details.since(age(run.started_at, now.value))}</p>}
    </Section>
  );
}

/** Show the last lines of a call's output while it runs. */
function OutputTail({ id }: { id: string }) {
  const text = useComputed(() => {
    void tick.value;
    const entry = active.conversation.entry(id);
    return entry ? textOf(entry).slice(-TAIL_CHARS).trimEnd().split("\n").slice(-TAIL_LINES).join("\n") : "";
  });
  return text.value ? <pre class="whole" tabIndex={0} aria-label={s.details.last}>{text.value}</pre> : null;
}

function SessionFacts() {
  const row = session.value;
  const agent = row?.agent || MAIN_AGENT;
  return (
    <DefinitionList items={[
      [s.details.agent, <a href={`#agents/${agent}`}>{agent}</a>],
      [s.details.model, currentModel.value],
      [s.details.folder, row?.workspace && <code>{row.workspace}</code>],
      [s.memory.title, memoryStatusText.value && <a href="#memory">{memoryStatusText.value}</a>],
      [s.details.startedAt, row && `${date(row.created_at, now.value)}, ${clock(row.created_at)}`],
    ]} />
  );
}

function UsageFacts() {
  void structureVersion.value;
  const usage = session.value?.usage;
  if (!usage || usage.input_tokens + usage.output_tokens === 0) return <p class="note quiet">{s.details.none}</p>;
  const read = contextTokens(active.conversation);
  return (
    <>
      <DefinitionList items={[
        [s.details.tokens, s.tokens(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.estimated_tokens)],
        [s.details.cost, formatCost(usage.cost_micros, lastModel(active.conversation))],
        [s.details.window, read > 0 && (windowTokens.value ? s.details.windowUsed(read, windowTokens.value) : s.details.windowUnknown(read))],
      ]} />
      {read > 0 && windowTokens.value > 0 && <meter min={0} max={windowTokens.value} high={0.8 * windowTokens.value} value={read} aria-label={s.details.window} />}
    </>
  );
}

/** List queued messages, and messages that are not saved yet. */
function MessageQueue() {
  void structureVersion.value;
  const { runs, turns } = active.conversation;
  const queued = [...runs.values()].filter((each) => each.status === "queued").flatMap((each) => turns.get(each.turn)?.entries[0] ?? []);
  const unsaved = outgoingMessages.value.filter((message) => message.session === session.value?.id);
  if (!queued.length && !unsaved.length) return null;
  return (
    <Section title={s.details.queue}>
      <ol>
        {queued.map((entry) => <li key={entry.id}><EntryButton entry={entry} /></li>)}
        {unsaved.map((message) => <li key={message.key}>{message.text.slice(0, EXCERPT_CHARS)} <span class="note">{message.refused ?? s.notSaved}</span></li>)}
      </ol>
    </Section>
  );
}

function TurnChanges({ turn }: { turn: Turn }) {
  void structureVersion.value;
  const opened = useSignal("");
  const [userMessage] = turn.entries;
  const files = fileChanges(turn);
  const shown = files.slice(0, FILES_SHOWN);
  return (
    <div class="changed-in">
      {userMessage && <h4><EntryButton entry={userMessage} /></h4>}
      {opened.value ? <ChangeList run={turn.run_id ?? ""} first={opened.value} /> : (
        <ul class="changes">
          {shown.map(({ path, added, removed }) => (
            <li key={path}><button type="button" class="fold" aria-expanded={false} onClick={() => (opened.value = path)}><code>{path}</code> <ChangeCounts added={added} removed={removed} /></button></li>
          ))}
          {files.length > shown.length && <li class="note quiet">{s.moreFiles(files.length - shown.length)}</li>}
        </ul>
      )}
    </div>
  );
}

function EntryButton({ entry }: { entry: Entry }) {
  return <button type="button" class="step" onClick={() => selectEntry(entry.id)}><span class="brief">{textOf(entry).slice(0, EXCERPT_CHARS) || s.you}</span></button>;
}

function LoadEarlierButton() {
  const busy = useSignal(false);
  const load = async () => {
    busy.value = true;
    await loadEarlier(PAGE_SIZE_MAX).catch(() => false);
    busy.value = false;
  };
  return <p class="buttons"><span class="note quiet">{s.details.onlyLoaded}</span><button type="button" class="quiet" disabled={busy.value} onClick={() => void load()}>{s.details.loadEarlier}</button></p>;
}
