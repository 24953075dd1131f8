// What the agent did: consecutive calls fold into one line, the live one shows its last lines, and each opens to
// what was asked for and what came of it.

import { useSignal, useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../../core/transcript_types";
import type { ChangePart } from "../../core/protocol";
import { actions } from "../app/actions";
import { Counts, Diff } from "../shared/diff";
import { Result } from "./attachments";
import { open, sought } from "../app/store";
import { s } from "../text/index";

const TAIL_LINES = 3;

export function textOf(entry: Entry): string {
  return entry.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

export function parsed(written: string): Record<string, unknown> | null {
  try {
    const found: unknown = JSON.parse(written);
    return found && typeof found === "object" && !Array.isArray(found) ? (found as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** What a call runs with: the ledger's word, or the model's where the ledger has none yet. */
export function argumentsOf(entry: Entry): string {
  return entry.arguments || open.conversation.callOf(entry)?.arguments || "";
}

export function inBrief(written: string): string {
  const found = parsed(written);
  const first = found ? (found["command"] ?? found["path"] ?? Object.values(found)[0] ?? "") : written;
  return String(first).replaceAll("\n", " ⏎ ");
}

function seconds(entry: Entry): number {
  return entry.ms / 1_000;
}

/** Consecutive calls in one line: "Read 6 files, ran 2 commands · 14 s". */
export function summary(entries: readonly Entry[]): string {
  const names = Map.groupBy(entries, (entry) => entry.name);
  const said = [...names].map(([name, each]) => s.groups[name]?.(each.length) ?? s.used(each.length, name));
  const time = entries.reduce((total, entry) => total + seconds(entry), 0);
  const line = said.join(", ") + (time >= 1 ? ` · ${s.took(time)}` : "");
  return line.charAt(0).toUpperCase() + line.slice(1);
}

/** Whether it is open: also when somebody goes to what one of these holds. */
function useOpening(entries: readonly Entry[]) {
  const isOpen = useSignal(false);
  useSignalEffect(() => {
    if (entries.some(({ id }) => id === sought.value)) isOpen.value = true;
  });
  return isOpen;
}

export function ToolGroup({ entries }: { entries: readonly Entry[] }) {
  const isOpen = useOpening(entries);
  const alone = entries.length === 1 ? entries[0] : undefined;
  if (alone) return <Tool entry={alone} version={alone.version} />;
  return (
    <div class="tools">
      <button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>{summary(entries)}</button>
      {isOpen.value && <div class="inside">{entries.map((entry) => <Tool key={entry.id} entry={entry} version={entry.version} />)}</div>}
    </div>
  );
}

/** An entry changes in its place: `version` says that it has. */
export function Tool({ entry }: { entry: Entry; version: number }) {
  const isOpen = useOpening([entry]);
  const written = argumentsOf(entry);
  const time = seconds(entry);
  const output = textOf(entry);
  const said = endOf(entry, output) || (entry.outcome ? s.toolOutcomes[entry.outcome] : s.toolStates[entry.state ?? "settled"]);
  const running = !entry.outcome && entry.state === "started";
  return (
    <div class={`tool ${entry.outcome ?? entry.state ?? ""}`} id={entry.id}>
      <button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
        <Line entry={entry} brief={inBrief(written)} />
        {said && <span class="said"> · {said}</span>}
        {time >= 1 && <span class="said"> · {s.took(time)}</span>}
      </button>
      {running && output && !isOpen.value && <pre class="tail">{output.trimEnd().split("\n").slice(-TAIL_LINES).join("\n")}</pre>}
      {isOpen.value && <Inside entry={entry} written={written} output={output} />}
      {entry.state === "in_doubt" && <InDoubt entry={entry} />}
    </div>
  );
}

/** Return how a command failed. The last line of its output says it. */
export function endOf(entry: Entry, output: string): string {
  const how = entry.outcome === "failed" && entry.name === "shell" ? /(?:^|\n)(exit code \d+|killed by \w+)\s*$/.exec(output)?.[1] : "";
  return how ? s.failedWith(how) : "";
}

function changeOf(entry: Entry): ChangePart | undefined {
  return entry.parts.find((part) => part.type === "change");
}

/** A call in words where there are some, once it is done; else by its name. */
function Line({ entry, brief }: { entry: Entry; brief: string }) {
  const words = entry.outcome === "done" ? s.toolLines[entry.name] : undefined;
  const change = changeOf(entry);
  if (change) return <><b>{words?.("") ?? s.changedIt}</b> <code>{change.path}</code> <Counts added={change.added ?? 0} removed={change.removed ?? 0} /></>;
  return words ? <span class="brief">{words(brief)}</span> : <><b>{s.toolNames[entry.name]?.[entry.outcome === "done" ? 1 : 0] ?? entry.name}</b> <code>{brief}</code></>;
}

function Inside({ entry, written, output }: { entry: Entry; written: string; output: string }) {
  const change = changeOf(entry);
  const printed = useRef<HTMLPreElement>(null);
  // Why it failed is said last.
  useLayoutEffect(() => {
    if (printed.current && entry.outcome === "failed") printed.current.scrollTop = printed.current.scrollHeight;
  }, [entry.outcome]);
  return (
    <div class="inside">
      {entry.edited && <p class="note">{s.changedByYou}</p>}
      {!change?.diff && <Arguments written={written} name={entry.name} />}
      {entry.parts.map((part) => part.type === "change" && part.diff && <Diff key={part.path} text={part.diff} path={part.path} />)}
      {!change?.diff && <pre tabIndex={0} aria-label={s.output} ref={printed}>{output || s.noOutput}</pre>}
      {entry.parts.map((part) => part.type === "file" && <Result key={part.blob} file={part} />)}
    </div>
  );
}

/** What ends the last line begins no other. */
function linesOf(text: string): string[] {
  return text.replace(/\n$/, "").split("\n");
}

/** What a call was asked to do; a file that is written reads as what is added. */
export function Arguments({ written, name }: { written: string; name: string }) {
  const found = parsed(written);
  if (!found) return <pre tabIndex={0} aria-label={s.arguments}>{written}</pre>;
  const { content, ...rest } = found;
  if (name === "edit_file") return <Edited found={found} />;
  return (
    <dl class="arguments" aria-label={s.arguments}>
      {Object.entries(name === "write_file" ? rest : found).map(([key, value]) => (
        <div key={key}><dt>{key}</dt><dd><code>{typeof value === "string" ? value : JSON.stringify(value)}</code></dd></div>
      ))}
      {name === "write_file" && typeof content === "string" && content && <dd><Diff text={linesOf(content).map((line) => `+${line}`).join("\n")} path={String(rest["path"] ?? "")} /></dd>}
    </dl>
  );
}

/** What is to be replaced in a file, and by what. */
function Edited({ found: { old_text, new_text, ...rest } }: { found: Record<string, unknown> }) {
  const signed = (text: unknown, sign: string) => (typeof text === "string" && text ? linesOf(text).map((line) => `${sign}${line}`) : []);
  const lines = [...signed(old_text, "-"), ...signed(new_text, "+")];
  return (
    <dl class="arguments" aria-label={s.arguments}>
      {Object.entries(rest).map(([key, value]) => <div key={key}><dt>{key}</dt><dd><code>{typeof value === "string" ? value : JSON.stringify(value)}</code></dd></div>)}
      {lines.length > 0 && <dd><Diff text={lines.join("\n")} path={String(rest["path"] ?? "")} /></dd>}
    </dl>
  );
}

function InDoubt({ entry }: { entry: Entry }) {
  const answer = (decision: keyof typeof s.doubts) =>
    void actions.answer(entry.run_id ?? "", entry.id, { decision, ...(decision === "mark_done" ? { result: `\n${s.saidFinished}` } : {}) });
  return (
    <div class="card" role="group" aria-label={s.mayHaveRun}>
      <p>{s.mayHaveRun}</p>
      {(Object.keys(s.doubts) as (keyof typeof s.doubts)[]).map((decision) => (
        <p key={decision} class="buttons">
          <button type="button" onClick={() => answer(decision)}>{s.doubts[decision][0]}</button>
          <span class="note quiet">{s.doubts[decision][1]}</span>
        </p>
      ))}
    </div>
  );
}
