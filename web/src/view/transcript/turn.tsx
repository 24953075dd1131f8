// One turn of the conversation: what was asked, what was done and said, and how it ended.

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import type { Entry, Turn, Work } from "../../core/transcript_types";
import { clock } from "../../core/format_time";
import { actions } from "../app/actions";
import { Copy } from "../shared/copy";
import { beside, pick } from "../details/store";
import { Attached } from "./attachments";
import { giveBack } from "../app/focus";
import { lazily, modules } from "../app/lazy";
import { Markdown } from "../shared/markdown";
import { AskedLine } from "../approvals/question";
import { costOf } from "../composer/usage_meter";
import { chosen, open } from "../app/store";
import { s } from "../text/index";
import { Steady } from "../shared/memo";
import { textOf, ToolGroup } from "./tool_calls";

const ChangeList = lazily(async () => (await modules.details()).ChangeList);
/** What a person is asked stands by itself, not among what was done. */
const ASKS = "ask_user";

type Piece = { key: string; version: number; entries: Entry[] };

/** Entries in the order they are read in, consecutive calls that have ended taken together. */
function pieces(turn: Turn): Piece[] {
  const found: Piece[] = [];
  for (const entry of turn.entries) {
    const last = found.at(-1);
    const joins = entry.role === "tool" && last?.entries[0]?.role === "tool" && entry.outcome && last.entries[0].outcome && ![entry, last.entries[0]].some(isQuestion);
    if (last && joins) {
      last.entries.push(entry);
      last.version = Math.max(last.version, entry.version);
    } else if (!isSilent(entry)) found.push({ key: entry.id, version: entry.role === "notice" ? turn.version : entry.version, entries: [entry] });
  }
  return found;
}

/** One that could not be asked is a call like any other. */
function isQuestion(entry: Entry): boolean {
  return entry.name === ASKS && entry.outcome !== "failed" && (entry.approval !== null || entry.outcome !== null);
}

/** A message that only made calls, or was cut off before its first word, has nothing to read. */
function isSilent(entry: Entry): boolean {
  if (entry.role !== "assistant" || entry.status === "streaming") return false;
  return entry.parts.every((part) => part.type === "tool_call" || ("text" in part && !part.text.trim()));
}

/** `offersRestore`: it is the first of the turns that were removed with it. */
export function TurnView({ turn, offersRestore }: { turn: Turn; version: string; offersRestore: boolean }) {
  const work = turn.run_id ? open.conversation.work.get(turn.run_id) : undefined;
  const shown = pieces(turn);
  const drawn = shown.map((piece) => <Steady key={piece.key} version={`${piece.version} ${turn.live}`} draw={() => <PieceView piece={piece} turn={turn} />} />);
  const id = turn.id || `turn-${turn.turn}`;
  if (!turn.live) return <Removed id={id} turn={turn} offersRestore={offersRestore}>{drawn}</Removed>;
  return (
    <section class="turn" id={id}>
      {drawn}
      {turn.memories.length > 0 && <FromMemory texts={turn.memories} />}
      {work && OVER.has(work.status) && <Changed turn={turn} run={work.id} version={turn.version} />}
      <Ending turn={turn} work={work} />
    </section>
  );
}

const OVER = new Set<Work["status"]>(["completed", "cancelled", "failed", "interrupted"]);

/** The files that the work changed, as far as its messages are here. */
function Changed({ turn, run }: { turn: Turn; run: string; version: number }) {
  const isOpen = useSignal(false);
  const paths = new Set(turn.entries.flatMap((entry) => (entry.run_id === run ? entry.parts : [])).flatMap((part) => (part.type === "change" ? [part.path] : [])));
  if (!paths.size) return null;
  const back = open.conversation.course.restored.get(run);
  const isBack = back !== undefined && [...paths].every((path) => back.has(path));
  return (
    <div class="tools changed">
      <button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>{s.changedFiles(paths.size)}{isBack && <span class="said"> · {s.isBack}</span>}</button>
      {isOpen.value && <ChangeList run={run} />}
    </div>
  );
}

/** What memory brought to an answer: there for whoever wonders how it knows. */
function FromMemory({ texts }: { texts: readonly string[] }) {
  return (
    <details class="thinking from-memory">
      <summary>{s.memory.brought(texts.length)}</summary>
      <ul>{texts.map((text) => <li key={text} class="words">{text}</li>)}</ul>
    </details>
  );
}

/** Move the focus from a button that goes away to where one writes, where it was pressed by the keyboard. */
function writeOn(event: MouseEvent): void {
  if (!event.detail) giveBack();
}

/** A turn that was removed: readable, and out of the way. */
function Removed({ id, turn, offersRestore, children }: { id: string; turn: Turn; offersRestore: boolean; children: ComponentChildren }) {
  const asked = turn.entries[0];
  return (
    <details class="turn gone" id={id}>
      <summary>
        {turn.removed ? s.removed : s.cleared} · <span class="words">{asked ? textOf(asked).slice(0, 80) : ""}</span>
        {turn.removed && turn.id && offersRestore && <button type="button" onClick={(event) => (event.preventDefault(), writeOn(event), void actions.restore(turn.id))}>{s.restore}</button>}
      </summary>
      {children}
    </details>
  );
}

function PieceView({ piece, turn }: { piece: Piece; turn: Turn }) {
  const [entry] = piece.entries;
  if (!entry) return null;
  if (isQuestion(entry)) return <AskedLine entry={entry} version={entry.version} />;
  if (entry.role === "tool") return <ToolGroup entries={piece.entries} />;
  if (entry.role === "notice") return <Notice entry={entry} turn={turn} />;
  return entry.role === "user" ? <Asked entry={entry} turn={turn} live={turn.live} /> : <Said entry={entry} />;
}

function Asked({ entry, turn, live }: { entry: Entry; turn: Turn; live: boolean }) {
  const editing = useSignal(false);
  const text = textOf(entry);
  if (editing.value) return <Editing entry={entry} turn={turn} done={() => (editing.value = false)} />;
  return (
    <article class="asked" id={entry.id} aria-label={s.you}>
      <div class="words">{text}</div>
      {entry.parts.map((part) => part.type === "file" && <Attached key={part.blob} file={part} />)}
      {live && turn.id && (
        <p class="acts">
          {text && <Copy label={s.copyMessage} text={() => text} />}
          {entry.place === 0 && (
            <>
              <button type="button" class="quiet" onClick={() => (editing.value = true)}>{s.edit}</button>
              <button type="button" class="quiet" onClick={(event) => (writeOn(event), void actions.undo(turn.id))}>{s.undoHere}</button>
              <button type="button" class="quiet" onClick={() => void actions.branch(turn.id)}>{s.branch}</button>
            </>
          )}
        </p>
      )}
    </article>
  );
}

function Editing({ entry, turn, done }: { entry: Entry; turn: Turn; done: () => void }) {
  const words = useSignal(textOf(entry));
  const files = entry.parts.flatMap((part) => (part.type === "file" ? [{ id: part.blob, name: part.name, ...(part.anyway ? { anyway: true } : {}) }] : []));
  const busy = useRef(false);
  const save = async () => {
    if (busy.current || (!words.value.trim() && !files.length)) return;
    busy.current = true;
    if (await actions.edit(turn.id, words.value, files)) done();
    busy.current = false;
  };
  const press = (event: KeyboardEvent) => {
    if (event.key === "Escape") done();
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) void save();
    else return;
    event.preventDefault();
    // Escape is not meant for the answer under way.
    event.stopPropagation();
  };
  return (
    <form class="asked editing" onSubmit={(event) => (event.preventDefault(), void save())}>
      <textarea aria-label={s.edit} rows={Math.min(12, words.value.split("\n").length + 1)} value={words.value}
        ref={(node) => node?.focus()} onInput={(event) => (words.value = event.currentTarget.value)}
        onKeyDown={press} />
      <p class="buttons"><button type="submit">{s.sendEdited}</button><button type="button" class="quiet" onClick={done}>{s.cancel}</button> <span class="note quiet">{s.editHelp}</span></p>
    </form>
  );
}

function Said({ entry }: { entry: Entry }) {
  const live = entry.status === "streaming";
  return (
    <article class={entry.late ? "said late" : "said"} id={entry.id} aria-label={s.assistant} aria-busy={live}>
      {entry.late && <p class="note quiet">{s.late}</p>}
      {entry.parts.map((part, place) => {
        if (part.type === "text") return <Markdown key={place} text={part.text} live={live && place === entry.parts.length - 1} />;
        if (part.type === "reasoning" && part.text.trim()) return <Thinking key={place} text={part.text} live={live && place === entry.parts.length - 1} />;
        return null;
      })}
      {live && <span class="pen" role="img" aria-label={s.writing} />}
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

/** A restart is one line inside the answer; earlier text does not move. */
function Notice({ entry, turn }: { entry: Entry; turn: Turn }) {
  const after = turn.entries.find((other) => other.place > entry.place && other.role !== "notice");
  const work = entry.run_id ? open.conversation.work.get(entry.run_id) : undefined;
  const status = entry.status as keyof typeof s.notices;
  const line = after
    ? [status === "interrupted" ? "" : s.notices[status], s.continued(clock(after.began_at || after.at))].filter(Boolean).join(" · ")
    : s.notices[status];
  return (
    <p class="hairline" id={entry.id}>
      <span>{line}</span>
      {!after && work?.status === "interrupted" && <button type="button" onClick={() => void actions.resume(work.id)}>{s.continueIt}</button>}
    </p>
  );
}

/** Switch between the versions of a message and its answer; not during a run, because that would cancel it. */
function Versions({ turn }: { turn: Turn }) {
  const versions = open.conversation.versionsOf(turn);
  const at = versions.indexOf(turn.id);
  if (at < 0) return null;
  const isBusy = [...open.conversation.work.values()].some((work) => !OVER.has(work.status));
  const button = (label: string, sign: string, to: number) => {
    const id = versions[to];
    return (
      <button type="button" class="quiet" aria-label={label} aria-disabled={!id || isBusy} onClick={() => id && !isBusy && void actions.choose(id, label)}
        ref={(node) => void (chosen.value?.turn === turn.id && chosen.value.label === label && node && ((chosen.value = null), node.focus()))}>{sign}</button>
    );
  };
  return (
    <span class="versions" role="group" aria-label={s.versions}>
      {button(s.versionBefore, "‹", at - 1)}<span>{at + 1}/{versions.length}</span>{button(s.versionAfter, "›", at + 1)}
    </span>
  );
}

/** What is to be said of the work below its last message. */
function Ending({ turn, work }: { turn: Turn; work: Work | undefined }) {
  const again = turn.id && <span class="again">{answerOf(turn) && <Copy label={s.copyAnswer} text={() => answerOf(turn)} />} <button type="button" class="quiet" onClick={() => void actions.retry(turn.id)}>{s.tryAgain}</button> <More turn={turn} /> <Versions turn={turn} /></span>;
  // An answer that was copied into a branch has no work of its own there; one that no model wrote is a summary.
  if (!work) return turn.entries.some((entry) => entry.role === "assistant" && entry.model) ? <Footer turn={turn}>{again}</Footer> : null;
  switch (work.status) {
    case "queued":
      if (othersAhead(work)) return <p class="note quiet">{work.steers ? s.toldSoon : s.queued}</p>;
      return <p class="note quiet">{s.notAnsweredYet} <button type="button" onClick={() => void actions.resume(work.id)}>{s.answerNow}</button></p>;
    case "failed":
      return <p class="note wrong" role="alert">{work.failure?.detail ?? s.failed} {again}</p>;
    case "cancelled":
      return <p class="note quiet">{s.stopped} {again}</p>;
    case "waiting":
      return work.waiting === "limit" ? <p class="note">{s.paused(work.detail)} <button type="button" onClick={() => void actions.resume(work.id)}>{s.continueIt}</button></p> : null;
    case "completed":
      return <Footer turn={turn} work={work}>{again}</Footer>;
    case "accepted":
    case "running": {
      const last = turn.entries.at(-1);
      if (work.retrying) return <p class="note">{s.retrying(work.retrying)}</p>;
      return last?.role === "assistant" && last.status === "streaming" ? null : <p class="note quiet">{s.working}</p>;
    }
    default:
      return null;
  }
}

/** The answer as it was written: its messages one below the other, and without a break where one goes on after a restart. */
function answerOf(turn: Turn): string {
  return turn.entries.reduce((before, entry) => {
    const text = entry.role === "assistant" && !entry.late ? textOf(entry) : "";
    return before + (before && text && !entry.continues ? "\n\n" : "") + text;
  }, "").trim();
}

/** Leads to all about an answer. */
function More({ turn }: { turn: Turn }) {
  const show = () => {
    pick((turn.entries.findLast((entry) => entry.role === "assistant") ?? turn.entries[0])?.id ?? "");
    beside(true);
  };
  return <button type="button" class="quiet" aria-label={s.details.ofAnswer} onClick={show}>{s.details.title}</button>;
}

function othersAhead(work: Work): boolean {
  return [...open.conversation.work.values()].some((other) => other.turn < work.turn && ["accepted", "running", "waiting", "queued"].includes(other.status));
}

function Footer({ turn, work, children }: { turn: Turn; work?: Work; children: ComponentChildren }) {
  const model = turn.entries.findLast((entry) => entry.model)?.model ?? "";
  const time = work?.started_at && work.ended_at ? (work.ended_at - work.started_at) / 1_000 : 0;
  const used = work && work.input_tokens + work.output_tokens > 0;
  const told = [
    model, used ? s.tokens(work.input_tokens, work.output_tokens, work.cached_tokens, work.estimated_tokens) : "",
    used ? costOf(work.cost_micros, model) : "", time ? s.took(time) : "",
  ].filter(Boolean);
  return <p class="footer">{told.join(" · ")} {children}</p>;
}
