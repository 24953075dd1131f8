// All about one call: what it was asked to do, what came of it, how long it took, what it changed.

import { useComputed, useSignal } from "@preact/signals";
import type { Entry } from "../../core/transcript_types";
import type { FilePart } from "../../core/protocol";
import { callsOf } from "../../core/digest";
import { clock } from "../../core/format_time";
import { Diff } from "../shared/diff";
import { Attached } from "../transcript/attachments";
import { Whole } from "../transcript/output";
import { open, shape, tick } from "../app/store";
import { s } from "../text/index";
import { Arguments, argumentsOf, endOf, inBrief, parsed, textOf } from "../transcript/tool_calls";
import { Facts, Part } from "./definition_list";
import { pick } from "./store";

/** What is still growing is drawn with every frame: not all of it. */
const LIVE_CHARS = 8_000;

export function stateOf(entry: Entry): string {
  if (entry.outcome) return endOf(entry, textOf(entry)) || s.toolOutcomes[entry.outcome] || s.details.done;
  return s.toolStates[entry.state ?? "settled"];
}

/** What was said when it was asked for is no cause of how it ended, and gives way to why it was not allowed. */
function isAskedWith({ approval, outcome }: Entry): boolean {
  return approval !== null && outcome !== "failed" && outcome !== "denied";
}

export function CallView({ id }: { id: string }) {
  // Only with its own changes, however much else is written.
  const version = useComputed(() => (void tick.value, open.conversation.entry(id)?.version));
  void version.value;
  const entry = open.conversation.entry(id);
  if (!entry) return null;
  const written = argumentsOf(entry);
  const changes = entry.parts.flatMap((part) => (part.type === "change" && part.diff ? [part] : []));
  return (
    <>
      <Steps entry={entry} />
      <Facts told={[[s.details.state, stateOf(entry)], [s.details.took, entry.ms > 0 && s.details.ms(entry.ms)], [s.details.when, clock(entry.at)], [s.details.askedWith, isAskedWith(entry) && entry.reason]]} />
      {entry.edited && <p class="note">{s.changedByYou}</p>}
      {changes.length ? changes.map((part) => <Part key={part.path} title={part.path}><Diff text={part.diff ?? ""} path={part.path} /></Part>) : <Part title={s.arguments}><Command written={written} name={entry.name} /></Part>}
      {(!changes.length || !entry.outcome) && <Printed entry={entry} version={entry.version} />}
      {entry.parts.map((part) => part.type === "file" && <Kept key={part.blob} file={part} />)}
    </>
  );
}

/** From one call of the answer to the next. */
function Steps({ entry }: { entry: Entry }) {
  void shape.value;
  const turn = open.conversation.turns.get(entry.turn);
  const calls = turn ? callsOf(turn) : [];
  const at = calls.findIndex((each) => each.id === entry.id);
  const to = (next: Entry | undefined) => ({ disabled: !next, onClick: () => next && pick(next.id) });
  return (
    <p class="buttons steps">
      <b class="brief">{entry.name}</b> <span class="spread" />
      {calls.length > 1 && <><button type="button" class="quiet" aria-label={s.details.previous} {...to(calls[at - 1])}>↑</button>
        <span class="note quiet">{s.findCount(at + 1, calls.length)}</span>
        <button type="button" class="quiet" aria-label={s.details.next} {...to(calls[at + 1])}>↓</button></>}
    </p>
  );
}

function Command({ written, name }: { written: string; name: string }) {
  const command = name === "shell" ? parsed(written)?.["command"] : null;
  return typeof command === "string" ? <pre class="command" tabIndex={0} aria-label={s.arguments}>{command}</pre> : <Arguments written={written} name={name} />;
}

function Printed({ entry }: { entry: Entry; version: number }) {
  const output = textOf(entry);
  const isCut = !entry.outcome && output.length > LIVE_CHARS;
  return (
    <Part title={s.output}>
      {isCut && <p class="note quiet">{s.details.cut}</p>}
      <pre class="whole" tabIndex={0} aria-label={s.output}>{(isCut ? output.slice(-LIVE_CHARS) : output) || (entry.outcome ? s.noOutput : s.working)}</pre>
    </Part>
  );
}

/** What is too long to be sent with the conversation is fetched when somebody wants it. */
function Kept({ file }: { file: FilePart }) {
  const isOpen = useSignal(false);
  if (!file.media_type.startsWith("text/")) return <p><Attached file={file} /></p>;
  if (isOpen.value) return <Part title={s.wholeOutput}><Whole file={file} /></Part>;
  return <p class="buttons"><button type="button" onClick={() => (isOpen.value = true)}>{s.openAll}</button><span class="note quiet">{s.size(file.size_bytes)}</span></p>;
}

/** A call in one line, which leads to all about it. */
export function CallLine({ entry }: { entry: Entry }) {
  void shape.value;
  const said = entry.outcome === "done" ? "" : stateOf(entry);
  return (
    <button type="button" class="step" onClick={() => pick(entry.id)}>
      <b>{entry.name}</b> <code>{inBrief(argumentsOf(entry))}</code>
      <span class="said">{[said, entry.ms > 0 ? s.details.ms(entry.ms) : ""].filter(Boolean).join(" · ")}</span>
    </button>
  );
}
