// Details of an answer: model, time, context, cost, steps and changed files.

import type { Turn, RunProgress } from "../../core/transcript_types";
import { toolCalls, fileChanges, ranCommand } from "../../core/turn_queries";
import { clock, date } from "../../core/format_time";
import { MAIN_AGENT } from "../composer/agent_model";
import { ChangeList } from "../transcript/file_changes";
import { AttachedFile } from "../transcript/attachments";
import { now, active, session, structureVersion, windowTokens } from "../app/store";
import { formatCost } from "../composer/usage_meter";
import { s } from "../text/index";
import { textOf } from "../transcript/tool_calls";
import { CallLine } from "./call_details";
import { DefinitionList, Section } from "./definition_list";

const ASKED_CHARS = 400;

export function AnswerDetails({ turn }: { turn: Turn }) {
  void structureVersion.value;
  const run = turn.run_id ? active.conversation.runs.get(turn.run_id) : undefined;
  const userMessage = turn.entries.find((entry) => entry.role === "user");
  const calls = toolCalls(turn);
  const [hasChanged, isUnlisted] = [fileChanges(turn).length > 0, ranCommand(turn)];
  const files = (userMessage?.parts ?? []).flatMap((part) => (part.type === "file" ? [part] : []));
  return (
    <>
      {userMessage && <Section title={s.details.asked}><p class="words">{textOf(userMessage).slice(0, ASKED_CHARS)}</p>{files.map((file) => <AttachedFile key={file.blob} file={file} />)}</Section>}
      <Section title={s.details.answer}><AnswerFacts turn={turn} run={run} /></Section>
      {calls.length > 0 && <Section title={s.details.steps}><ul>{calls.map((entry) => <li key={entry.id}><CallLine entry={entry} /></li>)}</ul></Section>}
      {run?.ended_at && (hasChanged || isUnlisted) && <Section title={s.details.changed}>{hasChanged && <ChangeList key={run.id} run={run.id} />}{isUnlisted && <p class="note quiet">{s.details.unlisted}</p>}</Section>}
      <Section title={s.details.fromMemory}>
        {turn.memories.length ? <ul class="memory-notes">{turn.memories.map((text) => <li key={text} class="words">{text}</li>)}</ul> : <p class="note quiet">{s.details.nothingFromMemory}</p>}
      </Section>
    </>
  );
}

function AnswerFacts({ turn, run }: { turn: Turn; run: RunProgress | undefined }) {
  void structureVersion.value;
  const answer = turn.entries.findLast((entry) => entry.model);
  const read = turn.entries.findLast((entry) => entry.context_tokens > 0)?.context_tokens ?? 0;
  const at = run?.started_at ?? turn.entries[0]?.at ?? 0;
  const isUsed = run && run.input_tokens + run.output_tokens > 0;
  return (
    <>
      <DefinitionList items={[
        [s.details.state, run && (run.failure?.detail ?? s.details.states[run.status])],
        [s.details.model, answer?.model],
        [s.details.when, at > 0 && `${date(at, now.value)}, ${clock(at)}`],
        [s.details.took, run?.started_at && run.ended_at && s.details.ms(run.ended_at - run.started_at)],
        [s.details.tokens, isUsed && s.tokens(run.input_tokens, run.output_tokens, run.cached_tokens, run.estimated_tokens)],
        [s.details.cost, isUsed && formatCost(run.cost_micros, answer?.model ?? "")],
        [s.details.window, read > 0 && (windowTokens.value ? s.details.windowUsed(read, windowTokens.value) : s.details.windowUnknown(read))],
      ]} />
      <p class="buttons"><a class="button" href={`#agents/${session.value?.agent || MAIN_AGENT}`}>{s.details.agentPrompt}</a></p>
    </>
  );
}
