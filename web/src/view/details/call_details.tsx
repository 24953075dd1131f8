// Details of a call: arguments, result, duration and changes.

import { useComputed, useSignal } from "@preact/signals";
import type { Entry } from "../../core/transcript_types";
import type { FilePart } from "../../core/protocol";
import { toolCalls } from "../../core/turn_queries";
import { clock } from "../../core/format_time";
import { Diff } from "../shared/diff";
import { AttachedFile } from "../transcript/attachments";
import { FileText } from "../transcript/output";
import { active, structureVersion, tick } from "../app/store";
import { s } from "../text/index";
import { Arguments, callArguments, failureText, argumentsSummary, parseArguments, textOf } from "../transcript/tool_calls";
import { DefinitionList, Section } from "./definition_list";
import { selectEntry } from "./store";

/** A running call's output is rendered with every frame, so only its end is shown. */
const LIVE_CHARS = 8_000;

export function callStateText(entry: Entry): string {
  if (entry.outcome) return failureText(entry, textOf(entry)) || s.toolOutcomes[entry.outcome] || s.details.done;
  return s.toolStates[entry.state ?? "settled"];
}

/** Return whether to show the reason for asking: not if the call failed or was denied, which has a reason of its own. */
function showsReason({ approval, outcome }: Entry): boolean {
  return approval !== null && outcome !== "failed" && outcome !== "denied";
}

export function CallDetails({ id }: { id: string }) {
  // Render only when this call changes.
  const version = useComputed(() => (void tick.value, active.conversation.entry(id)?.version));
  void version.value;
  const entry = active.conversation.entry(id);
  if (!entry) return null;
  const argumentsJson = callArguments(entry);
  const changes = entry.parts.flatMap((part) => (part.type === "change" && part.diff ? [part] : []));
  return (
    <>
      <CallNavigation entry={entry} />
      <DefinitionList items={[[s.details.state, callStateText(entry)], [s.details.took, entry.ms > 0 && s.details.ms(entry.ms)], [s.details.when, clock(entry.at)], [s.details.askedWith, showsReason(entry) && entry.reason]]} />
      {entry.edited && <p class="note">{s.changedByYou}</p>}
      {changes.length ? changes.map((part) => <Section key={part.path} title={part.path}><Diff text={part.diff ?? ""} path={part.path} /></Section>) : <Section title={s.arguments}><CommandOrArguments argumentsJson={argumentsJson} name={entry.name} /></Section>}
      {(!changes.length || !entry.outcome) && <CallOutput entry={entry} version={entry.version} />}
      {entry.parts.map((part) => part.type === "file" && <StoredOutput key={part.blob} file={part} />)}
    </>
  );
}

/** Move between the calls of an answer. */
function CallNavigation({ entry }: { entry: Entry }) {
  void structureVersion.value;
  const turn = active.conversation.turns.get(entry.turn);
  const calls = turn ? toolCalls(turn) : [];
  const index = calls.findIndex((each) => each.id === entry.id);
  const to = (next: Entry | undefined) => ({ disabled: !next, onClick: () => next && selectEntry(next.id) });
  return (
    <p class="buttons steps">
      <b class="brief">{entry.name}</b> <span class="spacer" />
      {calls.length > 1 && <><button type="button" class="quiet" aria-label={s.details.previous} {...to(calls[index - 1])}>↑</button>
        <span class="note quiet">{s.findCount(index + 1, calls.length)}</span>
        <button type="button" class="quiet" aria-label={s.details.next} {...to(calls[index + 1])}>↓</button></>}
    </p>
  );
}

function CommandOrArguments({ argumentsJson, name }: { argumentsJson: string; name: string }) {
  const command = name === "shell" ? parseArguments(argumentsJson)?.["command"] : null;
  return typeof command === "string" ? <pre class="command" tabIndex={0} aria-label={s.arguments}>{command}</pre> : <Arguments json={argumentsJson} name={name} />;
}

function CallOutput({ entry }: { entry: Entry; version: number }) {
  const output = textOf(entry);
  const isCut = !entry.outcome && output.length > LIVE_CHARS;
  return (
    <Section title={s.output}>
      {isCut && <p class="note quiet">{s.details.cut}</p>}
      <pre class="whole" tabIndex={0} aria-label={s.output}>{(isCut ? output.slice(-LIVE_CHARS) : output) || (entry.outcome ? s.noOutput : s.working)}</pre>
    </Section>
  );
}

/** Load an output that is too long for the transcript on demand. */
function StoredOutput({ file }: { file: FilePart }) {
  const isOpen = useSignal(false);
  if (!file.media_type.startsWith("text/")) return <p><AttachedFile file={file} /></p>;
  if (isOpen.value) return <Section title={s.wholeOutput}><FileText file={file} /></Section>;
  return <p class="buttons"><button type="button" onClick={() => (isOpen.value = true)}>{s.openAll}</button><span class="note quiet">{s.size(file.size_bytes)}</span></p>;
}

/** Show a call as one line that opens its details. */
export function CallLine({ entry }: { entry: Entry }) {
  void structureVersion.value;
  const state = entry.outcome === "done" ? "" : callStateText(entry);
  return (
    <button type="button" class="step" onClick={() => selectEntry(entry.id)}>
      <b>{entry.name}</b> <code>{argumentsSummary(callArguments(entry))}</code>
      <span class="state-text">{[state, entry.ms > 0 ? s.details.ms(entry.ms) : ""].filter(Boolean).join(" · ")}</span>
    </button>
  );
}
