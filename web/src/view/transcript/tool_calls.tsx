// Tool calls: consecutive ones share one line, a running one shows its last lines, and each opens to its arguments
// and result.

import { useSignal, useSignalEffect } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../../core/transcript_types";
import type { ChangePart } from "../../core/protocol";
import { actions } from "../app/actions";
import { ChangeCounts, Diff } from "../shared/diff";
import { ResultFile } from "./attachments";
import { active, scrollTarget } from "../app/store";
import { s } from "../text/index";

const TAIL_LINES = 3;

export function textOf(entry: Entry): string {
  return entry.parts.map((part) => (part.type === "text" ? part.text : "")).join("");
}

export function parseArguments(json: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(json);
    return value && typeof value === "object" && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** Return the arguments that a call runs with: from the ledger, or from the model's message before. */
export function callArguments(entry: Entry): string {
  return entry.arguments || active.conversation.findCall(entry)?.arguments || "";
}

export function argumentsSummary(json: string): string {
  const parsed = parseArguments(json);
  const first = parsed ? (parsed["command"] ?? parsed["path"] ?? Object.values(parsed)[0] ?? "") : json;
  return String(first).replaceAll("\n", " ⏎ ");
}

function seconds(entry: Entry): number {
  return entry.ms / 1_000;
}

/** Summarise consecutive calls in one line: "Read 6 files, ran 2 commands · 14 s". */
export function groupSummary(entries: readonly Entry[]): string {
  const names = Map.groupBy(entries, (entry) => entry.name);
  const parts = [...names].map(([name, calls]) => s.groups[name]?.(calls.length) ?? s.used(calls.length, name));
  const time = entries.reduce((total, entry) => total + seconds(entry), 0);
  const line = parts.join(", ") + (time >= 1 ? ` · ${s.took(time)}` : "");
  return line.charAt(0).toUpperCase() + line.slice(1);
}

/** Return whether the group is open. It opens when one of its entries is the scroll target. */
function useDisclosure(entries: readonly Entry[]) {
  const isOpen = useSignal(false);
  useSignalEffect(() => {
    if (entries.some(({ id }) => id === scrollTarget.value)) isOpen.value = true;
  });
  return isOpen;
}

export function ToolGroup({ entries }: { entries: readonly Entry[] }) {
  const isOpen = useDisclosure(entries);
  const single = entries.length === 1 ? entries[0] : undefined;
  if (single) return <ToolCall entry={single} version={single.version} />;
  return (
    <div class="tools">
      <button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>{groupSummary(entries)}</button>
      {isOpen.value && <div class="inside">{entries.map((entry) => <ToolCall key={entry.id} entry={entry} version={entry.version} />)}</div>}
    </div>
  );
}

/** An entry is mutable: `version` changes with it. */
export function ToolCall({ entry }: { entry: Entry; version: number }) {
  const isOpen = useDisclosure([entry]);
  const json = callArguments(entry);
  const time = seconds(entry);
  const output = textOf(entry);
  const state = failureText(entry, output) || (entry.outcome ? s.toolOutcomes[entry.outcome] : s.toolStates[entry.state ?? "settled"]);
  const running = !entry.outcome && entry.state === "started";
  return (
    <div class={`tool ${entry.outcome ?? entry.state ?? ""}`} id={entry.id}>
      <button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>
        <ToolSummary entry={entry} brief={argumentsSummary(json)} />
        {state && <span class="state-text"> · {state}</span>}
        {time >= 1 && <span class="state-text"> · {s.took(time)}</span>}
      </button>
      {running && output && !isOpen.value && <pre class="tail">{output.trimEnd().split("\n").slice(-TAIL_LINES).join("\n")}</pre>}
      {isOpen.value && <ToolCallBody entry={entry} json={json} output={output} />}
      {entry.state === "in_doubt" && <InDoubt entry={entry} />}
    </div>
  );
}

/** Return how a command failed. The last line of its output says it. */
export function failureText(entry: Entry, output: string): string {
  const reason = entry.outcome === "failed" && entry.name === "shell" ? /(?:^|\n)(exit code \d+|killed by \w+)\s*$/.exec(output)?.[1] : "";
  return reason ? s.failedWith(reason) : "";
}

function fileChange(entry: Entry): ChangePart | undefined {
  return entry.parts.find((part) => part.type === "change");
}

/** Describe a finished call in words if there are any, otherwise by its name. */
function ToolSummary({ entry, brief }: { entry: Entry; brief: string }) {
  const wording = entry.outcome === "done" ? s.toolLines[entry.name] : undefined;
  const change = fileChange(entry);
  if (change) return <><b>{wording?.("") ?? s.changedIt}</b> <code>{change.path}</code> <ChangeCounts added={change.added ?? 0} removed={change.removed ?? 0} /></>;
  return wording ? <span class="brief">{wording(brief)}</span> : <><b>{s.toolNames[entry.name]?.[entry.outcome === "done" ? 1 : 0] ?? entry.name}</b> <code>{brief}</code></>;
}

function ToolCallBody({ entry, json, output }: { entry: Entry; json: string; output: string }) {
  const change = fileChange(entry);
  const outputRef = useRef<HTMLPreElement>(null);
  // The reason of a failure is the last line.
  useLayoutEffect(() => {
    if (outputRef.current && entry.outcome === "failed") outputRef.current.scrollTop = outputRef.current.scrollHeight;
  }, [entry.outcome]);
  return (
    <div class="inside">
      {entry.edited && <p class="note">{s.changedByYou}</p>}
      {!change?.diff && <Arguments json={json} name={entry.name} />}
      {entry.parts.map((part) => part.type === "change" && part.diff && <Diff key={part.path} text={part.diff} path={part.path} />)}
      {!change?.diff && <pre tabIndex={0} aria-label={s.output} ref={outputRef}>{output || s.noOutput}</pre>}
      {entry.parts.map((part) => part.type === "file" && <ResultFile key={part.blob} file={part} />)}
    </div>
  );
}

/** Split a text into lines without an empty last one. */
function splitLines(text: string): string[] {
  return text.replace(/\n$/, "").split("\n");
}

/** Show the arguments of a call; the content of a written file as added lines. */
export function Arguments({ json, name }: { json: string; name: string }) {
  const parsed = parseArguments(json);
  if (!parsed) return <pre tabIndex={0} aria-label={s.arguments}>{json}</pre>;
  const { content, ...rest } = parsed;
  if (name === "edit_file") return <EditArguments parsed={parsed} />;
  return (
    <dl class="arguments" aria-label={s.arguments}>
      {Object.entries(name === "write_file" ? rest : parsed).map(([key, value]) => (
        <div key={key}><dt>{key}</dt><dd><code>{typeof value === "string" ? value : JSON.stringify(value)}</code></dd></div>
      ))}
      {name === "write_file" && typeof content === "string" && content && <dd><Diff text={splitLines(content).map((line) => `+${line}`).join("\n")} path={String(rest["path"] ?? "")} /></dd>}
    </dl>
  );
}

/** Show the old and new text of an edit as a diff. */
function EditArguments({ parsed: { old_text, new_text, ...rest } }: { parsed: Record<string, unknown> }) {
  const withSign = (text: unknown, sign: string) => (typeof text === "string" && text ? splitLines(text).map((line) => `${sign}${line}`) : []);
  const lines = [...withSign(old_text, "-"), ...withSign(new_text, "+")];
  return (
    <dl class="arguments" aria-label={s.arguments}>
      {Object.entries(rest).map(([key, value]) => <div key={key}><dt>{key}</dt><dd><code>{typeof value === "string" ? value : JSON.stringify(value)}</code></dd></div>)}
      {lines.length > 0 && <dd><Diff text={lines.join("\n")} path={String(rest["path"] ?? "")} /></dd>}
    </dl>
  );
}

function InDoubt({ entry }: { entry: Entry }) {
  const answer = (decision: keyof typeof s.doubts) =>
    void actions.answer(entry.run_id ?? "", entry.id, { decision, ...(decision === "mark_done" ? { result: `\n${s.userMarkedDone}` } : {}) });
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
