// All about one answer: who wrote it, when, from how much, what it took, and what was done for it.

import type { Turn, Work } from "../../core/transcript_types";
import { callsOf, changedIn, ranCommand } from "../../core/digest";
import { clock, date } from "../../core/format_time";
import { MAIN } from "../composer/agent_model";
import { ChangeList } from "../transcript/file_changes";
import { Attached } from "../transcript/attachments";
import { now, open, session, shape, windowTokens } from "../app/store";
import { costOf } from "../composer/usage_meter";
import { s } from "../text/index";
import { textOf } from "../transcript/tool_calls";
import { CallLine } from "./call_details";
import { Facts, Part } from "./definition_list";

const ASKED_CHARS = 400;

export function AnswerView({ turn }: { turn: Turn }) {
  void shape.value;
  const work = turn.run_id ? open.conversation.work.get(turn.run_id) : undefined;
  const asked = turn.entries.find((entry) => entry.role === "user");
  const calls = callsOf(turn);
  const [hasChanged, isUnlisted] = [changedIn(turn).length > 0, ranCommand(turn)];
  const files = (asked?.parts ?? []).flatMap((part) => (part.type === "file" ? [part] : []));
  return (
    <>
      {asked && <Part title={s.details.asked}><p class="words">{textOf(asked).slice(0, ASKED_CHARS)}</p>{files.map((file) => <Attached key={file.blob} file={file} />)}</Part>}
      <Part title={s.details.answer}><About turn={turn} work={work} /></Part>
      {calls.length > 0 && <Part title={s.details.steps}><ul>{calls.map((entry) => <li key={entry.id}><CallLine entry={entry} /></li>)}</ul></Part>}
      {work?.ended_at && (hasChanged || isUnlisted) && <Part title={s.details.changed}>{hasChanged && <ChangeList key={work.id} run={work.id} />}{isUnlisted && <p class="note quiet">{s.details.unlisted}</p>}</Part>}
      <Part title={s.details.brought}>
        {turn.memories.length ? <ul class="brought">{turn.memories.map((text) => <li key={text} class="words">{text}</li>)}</ul> : <p class="note quiet">{s.details.nothingBrought}</p>}
      </Part>
    </>
  );
}

function About({ turn, work }: { turn: Turn; work: Work | undefined }) {
  void shape.value;
  const answer = turn.entries.findLast((entry) => entry.model);
  const read = turn.entries.findLast((entry) => entry.context_tokens > 0)?.context_tokens ?? 0;
  const at = work?.started_at ?? turn.entries[0]?.at ?? 0;
  const isUsed = work && work.input_tokens + work.output_tokens > 0;
  return (
    <>
      <Facts told={[
        [s.details.state, work && (work.failure?.detail ?? s.details.states[work.status])],
        [s.details.model, answer?.model],
        [s.details.when, at > 0 && `${date(at, now.value)}, ${clock(at)}`],
        [s.details.took, work?.started_at && work.ended_at && s.details.ms(work.ended_at - work.started_at)],
        [s.details.tokens, isUsed && s.tokens(work.input_tokens, work.output_tokens, work.cached_tokens, work.estimated_tokens)],
        [s.details.cost, isUsed && costOf(work.cost_micros, answer?.model ?? "")],
        [s.details.window, read > 0 && (windowTokens.value ? s.details.windowUsed(read, windowTokens.value) : s.details.windowUnknown(read))],
      ]} />
      <p class="buttons"><a class="button" href={`#agents/${session.value?.agent || MAIN}`}>{s.details.told}</a></p>
    </>
  );
}
