// What was taken back after it was remembered, and who keeps it has no way to forget it.

import { attempt } from "../app/actions";
import { api } from "../app/store";
import { s } from "../text/index";
import { kept, readWaiting } from "./pending";
import type { KeptMemory } from "../../core/protocol";

export function Kept() {
  if (!kept.value.length) return null;
  return (
    <section aria-labelledby="memory-kept">
      <h3 id="memory-kept">{s.memory.kept}</h3>
      <p class="note quiet">{s.memory.keptWhy}</p>
      <ul class="owing">{kept.value.map((row) => <Row key={`${row.session_id} ${row.segment}`} row={row} />)}</ul>
    </section>
  );
}

function Row({ row }: { row: KeptMemory }) {
  const title = row.title || s.untitled;
  const seen = () => attempt(async () => {
    await api.post(`api/memory/waiting/${row.session_id}/${row.segment}`, { decision: "drop", deleted: false });
    await readWaiting();
  });
  return (
    <li class="kept">
      <p class="words"><a href={`#${row.session_id}`}>{title}</a></p>
      {row.detail && <p class="note quiet why">{row.detail}</p>}
      <p class="origin"><span class="spread" /><button type="button" class="quiet" aria-label={`${s.memory.keptSeen}: ${title}`} onClick={() => void seen()}>{s.memory.keptSeen}</button></p>
    </li>
  );
}
