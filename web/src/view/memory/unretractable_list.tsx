// Commits that were retracted, but whose memory provider cannot forget them.

import { attempt } from "../app/actions";
import { api } from "../app/store";
import { s } from "../text/index";
import { unretractable, loadQueue } from "./pending";
import type { RetainedMemory } from "../../core/protocol";

export function UnretractableList() {
  if (!unretractable.value.length) return null;
  return (
    <section aria-labelledby="memory-kept">
      <h3 id="memory-kept">{s.memory.unretractable}</h3>
      <p class="note quiet">{s.memory.unretractableHelp}</p>
      <ul class="queue-list">{unretractable.value.map((row) => <UnretractableRow key={`${row.session_id} ${row.segment}`} row={row} />)}</ul>
    </section>
  );
}

function UnretractableRow({ row }: { row: RetainedMemory }) {
  const title = row.title || s.untitled;
  const acknowledge = () => attempt(async () => {
    await api.post(`api/memory/waiting/${row.session_id}/${row.segment}`, { decision: "drop", deleted: false });
    await loadQueue();
  });
  return (
    <li class="kept">
      <p class="words"><a href={`#${row.session_id}`}>{title}</a></p>
      {row.detail && <p class="note quiet why">{row.detail}</p>}
      <p class="origin"><span class="spacer" /><button type="button" class="quiet" aria-label={`${s.memory.acknowledge}: ${title}`} onClick={() => void acknowledge()}>{s.memory.acknowledge}</button></p>
    </li>
  );
}
