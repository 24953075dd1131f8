// The memory queue: each entry with its state and its actions.

import type { MemoryQueueEntry } from "../../core/protocol";
import { age } from "../../core/format_time";
import { retryTime } from "./memory_status";
import { now } from "../app/store";
import { s } from "../text/index";
import { resolveInDoubt, dismissEntry, entryKey, outcome, commitNow, visibleQueue, committing } from "./store";

export function QueueList() {
  const rows = visibleQueue.value;
  if (!rows.length && !outcome.value && !committing.value) return null;
  const canCommitAll = rows.some((row) => row.state !== "in_doubt");
  return (
    <section aria-labelledby="memory-waiting">
      <div class="buttons">
        <h3 id="memory-waiting">{s.memory.waiting}</h3>
        <span class="spacer" />
        {canCommitAll && <button type="button" disabled={Boolean(committing.value)} onClick={() => void commitNow()}>{committing.value === "all" ? s.memory.working : s.memory.commitAllNow}</button>}
      </div>
      <p class="note quiet outcome" role="status">{committing.value ? s.memory.working : outcome.value}</p>
      <ul class="queue-list">{rows.map((row) => <QueueRow key={entryKey(row)} row={row} />)}</ul>
    </section>
  );
}

function QueueRow({ row }: { row: MemoryQueueEntry }) {
  if (row.state === "in_doubt") return <InDoubtRow row={row} />;
  const isOpen = row.state === "owed" || row.state === "failed";
  const title = entryTitle(row);
  return (
    <li class={row.state}>
      <p class="words"><EntryLink row={row} /> <span class="state">{stateText(row, now.value)}</span></p>
      {row.detail && <p class="note quiet why">{[row.detail, s.memory.tried(row.attempts)].filter(Boolean).join(" · ")}</p>}
      <p class="origin">
        <span>{s.memory.since(age(row.since, now.value))}</span>
        <span class="spacer" />
        {isOpen && <button type="button" class="quiet" disabled={Boolean(committing.value)} aria-label={`${s.memory.commitNow}: ${title}`} onClick={() => void commitNow(row.session_id)}>{committing.value === row.session_id ? s.memory.working : s.memory.commitNow}</button>}
        {isOpen && <button type="button" class="quiet" aria-label={`${s.memory.drop}: ${title}`} onClick={() => dismissEntry(row)}>{s.memory.drop}</button>}
      </p>
    </li>
  );
}

/** An entry in doubt: the user decides. */
function InDoubtRow({ row }: { row: MemoryQueueEntry }) {
  return (
    <li>
      <div class="card" role="group" aria-label={s.memory.states.in_doubt}>
        <p class="words"><EntryLink row={row} /></p>
        <p>{s.memory.states.in_doubt}</p>
        <p class="buttons">
          <button type="button" onClick={() => void resolveInDoubt(row, "retry")}>{s.memory.commitAgain}</button>
          <button type="button" onClick={() => void resolveInDoubt(row, "done")}>{s.memory.wasCommitted}</button>
          <button type="button" onClick={() => void resolveInDoubt(row, "drop")}>{s.memory.drop}</button>
        </p>
      </div>
    </li>
  );
}

function entryTitle(row: MemoryQueueEntry): string {
  return row.deleted ? s.memory.deleted : row.title || s.untitled;
}

function EntryLink({ row }: { row: MemoryQueueEntry }) {
  return row.deleted ? <b>{entryTitle(row)}</b> : <a href={`#${row.session_id}`}>{entryTitle(row)}</a>;
}

function stateText(row: MemoryQueueEntry, at: number): string {
  if (row.state === "failed") return s.memory.failed(retryTime(row.retry_at, at));
  if (row.state === "retracting" && row.detail) return s.memory.retractionFailed(retryTime(row.retry_at, at));
  return s.memory.states[row.state];
}
