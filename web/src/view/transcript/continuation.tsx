// Where a conversation was summed up, where it goes on, and where it came from.

import type { Summary } from "../../core/protocol";
import { Markdown } from "../shared/markdown";
import { open, session, sessions, tick } from "../app/store";
import { s } from "../text/index";

/** Stands after the messages that it is of: they can be read as before. */
export function Summarised({ summary }: { summary: Summary }) {
  return (
    <details class="summarised">
      <summary><span>{s.summarised}</span></summary>
      <p class="note quiet">{s.summarisedHelp}</p>
      <Markdown text={summary.text} live={false} />
    </details>
  );
}

/** Above where one writes: what is sent here is answered elsewhere. */
export function GoesOn() {
  void tick.value;
  const to = open.conversation.course.successor || session.value?.successor_session_id;
  if (!to) return null;
  return <p class="elsewhere" role="status">{s.goesOn} <a href={`#${to}`}>{sessions.value.get(to)?.title || s.goesOnThere}</a>. {s.sentThere}</p>;
}

/** At the beginning of a conversation that goes on from another. */
export function CameFrom() {
  const from = session.value?.previous_session_id;
  const first = open.conversation.ordered()[0];
  // One that goes on from another begins with a turn that nobody works on; so do copies, which have a parent.
  const isSo = from && !session.value?.parent_session_id && open.conversation.before === null && first?.turn === 1 && !first.run_id;
  return isSo ? <p class="hairline calm"><span>{s.cameFrom} <a href={`#${from}`}>{sessions.value.get(from)?.title || s.cameFromThere}</a></span></p> : null;
}
