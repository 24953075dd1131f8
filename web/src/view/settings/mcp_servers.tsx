// MCP servers: whether they are connected, what they bring, what went wrong, and connecting one anew.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { McpList, McpTold } from "../../core/protocol";
import { age } from "../../core/format_time";
import { attempt } from "../app/actions";
import { api, me, now } from "../app/store";
import { set } from "../text/settings";

const LOOK_EVERY_MS = 3_000;

export function McpServers() {
  const found = useSignal<readonly McpTold[] | null>(null);
  const load = async () => (found.value = (await api.get<McpList>("api/mcp")).servers);
  useEffect(() => {
    void attempt(load);
    const looking = setInterval(() => void load().catch(() => undefined), LOOK_EVERY_MS);
    return () => clearInterval(looking);
  }, []);
  const again = (name: string) => attempt(async () => (found.value = (await api.post<McpList>(`api/mcp/${encodeURIComponent(name)}/reconnect`)).servers));
  return (
    <section aria-labelledby="set-mcp">
      <h3 id="set-mcp">{set.mcp.title}</h3>
      {found.value?.length === 0 && <p class="note quiet">{set.mcp.none}</p>}
      {found.value?.map((each) => <Server key={each.name} told={each} again={() => void again(each.name)} />)}
    </section>
  );
}

function Server({ told, again }: { told: McpTold; again: () => void }) {
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  const soon = told.state === "waiting" ? Math.max(0, Math.round((told.retry_at - Date.now()) / 1000)) : 0;
  const state = [set.mcp.states[told.state], ...(soon ? [set.mcp.again(soon)] : []), set.mcp.kinds[told.kind]].join(" · ");
  return (
    <div class="channel" role="group" aria-labelledby={`set-mcp-${told.name}`}>
      <p class="buttons"><b id={`set-mcp-${told.name}`}>{told.name}</b> <span class={told.state === "ready" ? "note good" : "note quiet"}>{state}</span><span class="spread" />
        {isAdmin && <button type="button" aria-label={`${set.mcp.reconnect} ${told.name}`} onClick={again}>{set.mcp.reconnect}</button>}</p>
      {told.last_error && <p class={told.state === "ready" ? "note quiet" : "note wrong"}>{set.mcp.error(age(told.last_error_at, now.value), told.last_error)}</p>}
      {told.tools.length > 0 && <details><summary>{set.mcp.tools(told.tools.length)}</summary><p>{told.tools.map((each) => <span key={each}><code>{each}</code> </span>)}</p></details>}
      {told.left_out.length > 0 && <details><summary>{set.mcp.leftOut}</summary><ul>{told.left_out.map((each) => <li key={each} class="note">{each}</li>)}</ul></details>}
    </div>
  );
}
