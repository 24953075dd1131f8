// The prompt of an agent: what its model receives before the conversation, word for word.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { AgentPrompt, AgentInfo } from "../../core/protocol";
import { MAIN_AGENT } from "../composer/agent_model";
import { api, listedSessions, sessionTitle } from "../app/store";
import { s } from "../text/index";
import { agentPath, errorTextOf } from "./store";

const CONVERSATIONS_MAX = 30;

export function PromptPreview({ agent }: { agent: AgentInfo }) {
  const isOpen = useSignal(false);
  const sessionId = useSignal("");
  const prompt = useSignal<AgentPrompt | null>(null);
  const errorText = useSignal("");
  const load = async () => {
    const chosen = sessionId.value;
    const message = await errorTextOf(async () => {
      const found = await api.get<AgentPrompt>(`${agentPath(agent.name)}/prompt${chosen ? `?session_id=${encodeURIComponent(chosen)}` : ""}`);
      if (chosen === sessionId.value) prompt.value = found;
    });
    if (chosen === sessionId.value) errorText.value = message;
  };
  useEffect(() => {
    if (isOpen.value) void load();
  }, [isOpen.value, sessionId.value, agent.digest]);
  const agentSessions = listedSessions.value.filter((each) => (each.agent || MAIN_AGENT) === agent.name).slice(0, CONVERSATIONS_MAX);
  const content = prompt.value;
  return (
    <section class="prompt-preview" aria-labelledby="agent-sent">
      <h3 id="agent-sent"><button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>{s.agents.prompt}</button></h3>
      {isOpen.value && (
        <>
          <p class="buttons"><span class="note quiet">{s.agents.promptHelp}</span><span class="spacer" />
            <label>{s.agents.promptFor}{" "}
              <select value={sessionId.value} onChange={(event) => (sessionId.value = event.currentTarget.value)}>
                <option value="">{s.agents.inNewSession}</option>
                {agentSessions.map((each) => <option key={each.id} value={each.id}>{sessionTitle(each)}</option>)}
              </select>
            </label>
            <button type="button" onClick={() => void load()}>{s.agents.refresh}</button></p>
          <p role="status" class="note wrong">{errorText.value}</p>
          {!content && !errorText.value && <p class="note quiet" role="status">{s.loading}</p>}
          {content && !errorText.value && <PromptContent prompt={content} />}
        </>
      )}
    </section>
  );
}

function PromptContent({ prompt }: { prompt: AgentPrompt }) {
  return (
    <>
      <p class="note quiet">{s.agents.promptSize(prompt.model, prompt.tokens, prompt.window_tokens)}</p>
      <h4>{s.agents.instructions}</h4>
      <pre class="command" tabIndex={0} role="region" aria-label={s.agents.instructions}>{prompt.instructions}</pre>
      <h4>{prompt.tools.length ? s.agents.toolsSent(prompt.tools.length) : s.agents.noTools}</h4>
      {prompt.tools.map((each) => (
        <details key={each.name}>
          <summary><b>{each.name}</b> <span class="note quiet">{each.description.split("\n")[0]}</span></summary>
          <pre class="command" tabIndex={0} role="region" aria-label={each.name}>{JSON.stringify(each, null, 2)}</pre>
        </details>
      ))}
    </>
  );
}
