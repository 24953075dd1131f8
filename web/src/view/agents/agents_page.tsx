// The agents page: all agents with their errors, and the editor of one.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { AgentInfo } from "../../core/protocol";
import { pageAgent, connectionStatus, me, defaultModel } from "../app/store";
import { s } from "../text/index";
import { drafts, refreshAgents, NAME_PATTERN, NO_FILE, loadError, agentList } from "./store";
import { AgentEditor } from "./editor";
import { PromptPreview } from "./prompt_preview";
import { goTo } from "../app/navigation";

const POLL_MS = 4_000;

export function AgentsPage() {
  const container = useRef<HTMLDivElement>(null);
  const isLost = connectionStatus.value === "lost";
  useEffect(() => {
    container.current?.focus({ preventScroll: true });
    const timer = setInterval(() => void refreshAgents(), POLL_MS);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => void (isLost || refreshAgents()), [isLost]);
  const list = agentList.value;
  const name = pageAgent.value || "main";
  const agent = list?.agents.find((each) => each.name === name);
  return (
    <div class="agents" ref={container} tabIndex={-1} role="region" aria-label={s.agents.title}>
      {isLost && <p class="banner" role="status">{s.disconnected}</p>}
      <p class="note quiet">{s.agents.about}</p>
      {loadError.value && !isLost && <p class="note wrong" role="alert">{loadError.value}</p>}
      {!list && !loadError.value && <p class="note quiet" role="status">{s.loading}</p>}
      {list && <AgentList agents={list.agents} name={name} />}
      {list && list.errors.length > 0 && <section><h3>{s.agents.invalidFiles}</h3><ul>{list.errors.map((each) => <li key={each} class="note wrong">{each}</li>)}</ul></section>}
      {list && <AgentEditor key={name} name={name} agent={agent} tools={list.tools} />}
      {agent?.answers && <PromptPreview key={`sent ${name}`} agent={agent} />}
    </div>
  );
}

function AgentList({ agents, name }: { agents: readonly AgentInfo[]; name: string }) {
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  return (
    <section>
      <ul class="agent-list" aria-label={s.agents.list}>
        {agents.map((each) => (
          <li key={each.name} aria-current={each.name === name ? "true" : undefined}>
            <a href={`#agents/${each.name}`}><b>{each.name}</b> <span class="note quiet">{each.model || defaultModel.value?.name}</span>
              {each.description && <span>{each.description}</span>}
              {[each.error, ...each.unasked].filter(Boolean).map((wrong) => <span key={wrong} class="note wrong">{wrong}</span>)}</a>
          </li>
        ))}
      </ul>
      {isAdmin && <NewAgentForm agents={agents} />}
    </section>
  );
}

function NewAgentForm({ agents }: { agents: readonly AgentInfo[] }) {
  const name = useSignal("");
  const errorText = useSignal("");
  const create = () => {
    const newName = name.value.trim();
    errorText.value = !NAME_PATTERN.test(newName) ? s.agents.badName : agents.some((each) => each.name === newName) ? s.agents.exists(newName) : "";
    if (errorText.value) return;
    if (!drafts.has(newName)) drafts.set(newName, { text: s.agents.first(newName), base: NO_FILE });
    name.value = "";
    goTo(`agents/${newName}`);
  };
  return (
    <form class="buttons" onSubmit={(event) => (event.preventDefault(), create())}>
      <label>{s.agents.new} <input value={name.value} maxLength={40} autocomplete="off" spellcheck={false} placeholder={s.agents.name} onInput={(event) => { name.value = event.currentTarget.value; errorText.value = ""; }} /></label>
      <button type="submit" disabled={!name.value.trim()}>{s.agents.create}</button>
      <span role="status" class={errorText.value ? "note wrong" : "note quiet"}>{errorText.value || s.agents.nameHelp}</span>
    </form>
  );
}
