// Where a session was summarised, and its predecessor and successor.

import type { Summary } from "../../core/protocol";
import { Markdown } from "../shared/markdown";
import { active, session, sessions, tick } from "../app/store";
import { s } from "../text/index";

/** Show the summary after the messages that it covers. They stay readable. */
export function SummaryDivider({ summary }: { summary: Summary }) {
  return (
    <details class="summarised">
      <summary><span>{s.summarised}</span></summary>
      <p class="note quiet">{s.summarisedHelp}</p>
      <Markdown text={summary.text} live={false} />
    </details>
  );
}

/** Above the composer: say that the successor answers what is sent here. */
export function ContinuationNotice() {
  void tick.value;
  const successor = active.conversation.meta.successor || session.value?.successor_session_id;
  if (!successor) return null;
  return <p class="continuation" role="status">{s.continuedIn} <a href={`#${successor}`}>{sessions.value.get(successor)?.title || s.continuedInNew}</a>. {s.answeredThere}</p>;
}

/** At the beginning of a session: link to the one that it continues. */
export function OriginNotice() {
  const origin = session.value?.previous_session_id;
  const first = active.conversation.orderedTurns()[0];
  // A continuation begins with a turn without a run; so does a copy, but a copy has a parent.
  const isContinuation = origin && !session.value?.parent_session_id && active.conversation.earlierCursor === null && first?.turn === 1 && !first.run_id;
  return isContinuation ? <p class="hairline calm"><span>{s.continuedFrom} <a href={`#${origin}`}>{sessions.value.get(origin)?.title || s.earlierSession}</a></span></p> : null;
}
