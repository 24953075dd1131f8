// All about the conversation: what goes on in it now, who answers, what it used, what waits, which files it is about.

import { useComputed, useSignal } from "@preact/signals";
import type { Entry, Turn } from "../../core/transcript_types";
import { attachedTo, changedIn, ranCommand, underWay } from "../../core/digest";
import { age, clock, date } from "../../core/format_time";
import { ChangeList } from "../transcript/file_changes";
import { MAIN, modelHere } from "../composer/agent_model";
import { Counts } from "../shared/diff";
import { Attached } from "../transcript/attachments";
import { loadEarlier, PAGE_MAX } from "../app/session_sync";
import { rememberedHere } from "../memory/memory_status";
import { contextTokens, costOf, wroteLast } from "../composer/usage_meter";
import { letters, now, open, session, shape, tick, windowTokens } from "../app/store";
import { s } from "../text/index";
import { textOf } from "../transcript/tool_calls";
import { CallLine } from "./call_details";
import { Facts, Part } from "./definition_list";
import { pick } from "./store";

const TAIL_LINES = 12;
const TAIL_CHARS = 4_000;
const WORDS_CHARS = 120;
const FILES_SHOWN = 8;

// Entries and turns change in their place: whatever tells of one is drawn with every event, not with every word.

export function WholeView() {
  void shape.value;
  const turns = open.conversation.ordered();
  const changed = turns.filter((turn) => turn.live && turn.run_id && changedIn(turn).length > 0);
  const files = attachedTo(turns);
  const isPart = open.conversation.before !== null;
  return (
    <>
      <Now />
      <Part title={s.details.who}><Who /></Part>
      <Part title={s.details.used}><Used /></Part>
      <Queue />
      <Part title={s.details.changed}>
        {changed.map((turn) => <ChangedIn key={turn.turn} turn={turn} />)}
        {turns.some((turn) => turn.live && ranCommand(turn)) ? <p class="note quiet">{s.details.unlisted}</p> : !changed.length && <p class="note quiet">{s.details.none}</p>}
      </Part>
      <Part title={s.details.attached}>
        {files.length ? <ul class="attachments">{files.map((file) => <li key={file.blob}><Attached file={file} /> <span class="note quiet">{s.size(file.size_bytes)}</span></li>)}</ul> : <p class="note quiet">{s.details.none}</p>}
      </Part>
      {isPart && <Earlier />}
    </>
  );
}

function Now() {
  void shape.value;
  const found = underWay(open.conversation.work.values(), open.conversation.turns);
  if (!found) return null;
  const { work, running } = found;
  return (
    <Part title={s.details.now}>
      {running.map((entry) => <div key={entry.id}><CallLine entry={entry} /><Tail id={entry.id} /></div>)}
      {!running.length && <p>{work.status === "waiting" ? s.details.waits : s.details.writes}</p>}
      {work.started_at && <p class="note quiet">{s.details.since(age(work.started_at, now.value))}</p>}
    </Part>
  );
}

/** The end of what a call prints, as it prints it. */
function Tail({ id }: { id: string }) {
  const text = useComputed(() => {
    void tick.value;
    const entry = open.conversation.entry(id);
    return entry ? textOf(entry).slice(-TAIL_CHARS).trimEnd().split("\n").slice(-TAIL_LINES).join("\n") : "";
  });
  return text.value ? <pre class="whole" tabIndex={0} aria-label={s.details.last}>{text.value}</pre> : null;
}

function Who() {
  const row = session.value;
  const agent = row?.agent || MAIN;
  return (
    <Facts told={[
      [s.details.agent, <a href={`#agents/${agent}`}>{agent}</a>],
      [s.details.model, modelHere.value],
      [s.details.folder, row?.workspace && <code>{row.workspace}</code>],
      [s.memory.title, rememberedHere.value && <a href="#memory">{rememberedHere.value}</a>],
      [s.details.begun, row && `${date(row.created_at, now.value)}, ${clock(row.created_at)}`],
    ]} />
  );
}

function Used() {
  void shape.value;
  const used = session.value?.usage;
  if (!used || used.input_tokens + used.output_tokens === 0) return <p class="note quiet">{s.details.none}</p>;
  const read = contextTokens(open.conversation);
  return (
    <>
      <Facts told={[
        [s.details.tokens, s.tokens(used.input_tokens, used.output_tokens, used.cached_tokens, used.estimated_tokens)],
        [s.details.cost, costOf(used.cost_micros, wroteLast(open.conversation))],
        [s.details.window, read > 0 && (windowTokens.value ? s.details.windowUsed(read, windowTokens.value) : s.details.windowUnknown(read))],
      ]} />
      {read > 0 && windowTokens.value > 0 && <meter min={0} max={windowTokens.value} high={0.8 * windowTokens.value} value={read} aria-label={s.details.window} />}
    </>
  );
}

/** What was sent and is not answered yet, also what is not even saved. */
function Queue() {
  void shape.value;
  const { work, turns } = open.conversation;
  const queued = [...work.values()].filter((each) => each.status === "queued").flatMap((each) => turns.get(each.turn)?.entries[0] ?? []);
  const unsaved = letters.value.filter((letter) => letter.session === session.value?.id);
  if (!queued.length && !unsaved.length) return null;
  return (
    <Part title={s.details.queue}>
      <ol>
        {queued.map((entry) => <li key={entry.id}><Pick entry={entry} /></li>)}
        {unsaved.map((letter) => <li key={letter.key}>{letter.text.slice(0, WORDS_CHARS)} <span class="note">{letter.refused ?? s.notSaved}</span></li>)}
      </ol>
    </Part>
  );
}

function ChangedIn({ turn }: { turn: Turn }) {
  void shape.value;
  const opened = useSignal("");
  const [asked] = turn.entries;
  const files = changedIn(turn);
  const shown = files.slice(0, FILES_SHOWN);
  return (
    <div class="changed-in">
      {asked && <h4><Pick entry={asked} /></h4>}
      {opened.value ? <ChangeList run={turn.run_id ?? ""} first={opened.value} /> : (
        <ul class="changes">
          {shown.map(({ path, added, removed }) => (
            <li key={path}><button type="button" class="fold" aria-expanded={false} onClick={() => (opened.value = path)}><code>{path}</code> <Counts added={added} removed={removed} /></button></li>
          ))}
          {files.length > shown.length && <li class="note quiet">{s.moreFiles(files.length - shown.length)}</li>}
        </ul>
      )}
    </div>
  );
}

function Pick({ entry }: { entry: Entry }) {
  return <button type="button" class="step" onClick={() => pick(entry.id)}><span class="brief">{textOf(entry).slice(0, WORDS_CHARS) || s.you}</span></button>;
}

function Earlier() {
  const busy = useSignal(false);
  const load = async () => {
    busy.value = true;
    await loadEarlier(PAGE_MAX).catch(() => false);
    busy.value = false;
  };
  return <p class="buttons"><span class="note quiet">{s.details.onlyLoaded}</span><button type="button" class="quiet" disabled={busy.value} onClick={() => void load()}>{s.details.loadEarlier}</button></p>;
}
