// What waits to be remembered, what is in the way of it, and what can be done about that.

import type { WaitingMemory } from "../../core/protocol";
import { age } from "../../core/format_time";
import { retryTime } from "./memory_status";
import { now } from "../app/store";
import { s } from "../text/index";
import { decide, drop, keyOf, outcome, rememberNow, shownWaiting, working } from "./store";

export function Waiting() {
  const rows = shownWaiting.value;
  if (!rows.length && !outcome.value && !working.value) return null;
  const canAll = rows.some((row) => row.state !== "in_doubt");
  return (
    <section aria-labelledby="memory-waiting">
      <div class="buttons">
        <h3 id="memory-waiting">{s.memory.waiting}</h3>
        <span class="spread" />
        {canAll && <button type="button" disabled={Boolean(working.value)} onClick={() => void rememberNow()}>{working.value === "all" ? s.memory.working : s.memory.allNow}</button>}
      </div>
      <p class="note quiet outcome" role="status">{working.value ? s.memory.working : outcome.value}</p>
      <ul class="owing">{rows.map((row) => <Row key={keyOf(row)} row={row} />)}</ul>
    </section>
  );
}

function Row({ row }: { row: WaitingMemory }) {
  if (row.state === "in_doubt") return <Asked row={row} />;
  const isOpen = row.state === "owed" || row.state === "failed";
  const title = nameOf(row);
  return (
    <li class={row.state}>
      <p class="words"><Where row={row} /> <span class="state">{stateOf(row, now.value)}</span></p>
      {row.detail && <p class="note quiet why">{[row.detail, s.memory.tried(row.attempts)].filter(Boolean).join(" · ")}</p>}
      <p class="origin">
        <span>{s.memory.since(age(row.since, now.value))}</span>
        <span class="spread" />
        {isOpen && <button type="button" class="quiet" disabled={Boolean(working.value)} aria-label={`${s.memory.now}: ${title}`} onClick={() => void rememberNow(row.session_id)}>{working.value === row.session_id ? s.memory.working : s.memory.now}</button>}
        {isOpen && <button type="button" class="quiet" aria-label={`${s.memory.drop}: ${title}`} onClick={() => drop(row)}>{s.memory.drop}</button>}
      </p>
    </li>
  );
}

/** Nobody knows whether it was remembered: a person says what to do. */
function Asked({ row }: { row: WaitingMemory }) {
  return (
    <li>
      <div class="card" role="group" aria-label={s.memory.states.in_doubt}>
        <p class="words"><Where row={row} /></p>
        <p>{s.memory.states.in_doubt}</p>
        <p class="buttons">
          <button type="button" onClick={() => void decide(row, "retry")}>{s.memory.again}</button>
          <button type="button" onClick={() => void decide(row, "done")}>{s.memory.wasDone}</button>
          <button type="button" onClick={() => void decide(row, "drop")}>{s.memory.drop}</button>
        </p>
      </div>
    </li>
  );
}

function nameOf(row: WaitingMemory): string {
  return row.deleted ? s.memory.deleted : row.title || s.untitled;
}

function Where({ row }: { row: WaitingMemory }) {
  return row.deleted ? <b>{nameOf(row)}</b> : <a href={`#${row.session_id}`}>{nameOf(row)}</a>;
}

function stateOf(row: WaitingMemory, at: number): string {
  if (row.state === "failed") return s.memory.failed(retryTime(row.retry_at, at));
  if (row.state === "retracting" && row.detail) return s.memory.unforgotten(retryTime(row.retry_at, at));
  return s.memory.states[row.state];
}
