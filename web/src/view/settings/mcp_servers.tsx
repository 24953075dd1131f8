// MCP servers: their status, tools and errors, and reconnecting.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { McpList, McpServerInfo } from "../../core/protocol";
import { age } from "../../core/format_time";
import { attempt } from "../app/actions";
import { api, me, now } from "../app/store";
import { settingsText } from "../text/settings";

const POLL_MS = 3_000;

export function McpSettings() {
  const servers = useSignal<readonly McpServerInfo[] | null>(null);
  const load = async () => (servers.value = (await api.get<McpList>("api/mcp")).servers);
  useEffect(() => {
    void attempt(load);
    const timer = setInterval(() => void load().catch(() => undefined), POLL_MS);
    return () => clearInterval(timer);
  }, []);
  const reconnect = (name: string) => attempt(async () => (servers.value = (await api.post<McpList>(`api/mcp/${encodeURIComponent(name)}/reconnect`)).servers));
  return (
    <section aria-labelledby="set-mcp">
      <h3 id="set-mcp">{settingsText.mcp.title}</h3>
      {servers.value?.length === 0 && <p class="note quiet">{settingsText.mcp.none}</p>}
      {servers.value?.map((each) => <ServerCard key={each.name} server={each} reconnect={() => void reconnect(each.name)} />)}
    </section>
  );
}

function ServerCard({ server, reconnect }: { server: McpServerInfo; reconnect: () => void }) {
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  const retryInSeconds = server.state === "waiting" ? Math.max(0, Math.round((server.retry_at - Date.now()) / 1000)) : 0;
  const state = [settingsText.mcp.states[server.state], ...(retryInSeconds ? [settingsText.mcp.again(retryInSeconds)] : []), settingsText.mcp.kinds[server.kind]].join(" · ");
  return (
    <div class="channel" role="group" aria-labelledby={`set-mcp-${server.name}`}>
      <p class="buttons"><b id={`set-mcp-${server.name}`}>{server.name}</b> <span class={server.state === "ready" ? "note good" : "note quiet"}>{state}</span><span class="spacer" />
        {isAdmin && <button type="button" aria-label={`${settingsText.mcp.reconnect} ${server.name}`} onClick={reconnect}>{settingsText.mcp.reconnect}</button>}</p>
      {server.last_error && <p class={server.state === "ready" ? "note quiet" : "note wrong"}>{settingsText.mcp.error(age(server.last_error_at, now.value), server.last_error)}</p>}
      {server.tools.length > 0 && <details><summary>{settingsText.mcp.tools(server.tools.length)}</summary><p>{server.tools.map((each) => <span key={each}><code>{each}</code> </span>)}</p></details>}
      {server.left_out.length > 0 && <details><summary>{settingsText.mcp.leftOut}</summary><ul>{server.left_out.map((each) => <li key={each} class="note">{each}</li>)}</ul></details>}
    </div>
  );
}
