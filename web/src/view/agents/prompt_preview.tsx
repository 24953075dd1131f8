// What an agent's model is sent before what is said, word for word.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { AgentPrompt, AgentTold } from "../../core/protocol";
import { MAIN } from "../composer/agent_model";
import { api, ordered, titleOf } from "../app/store";
import { s } from "../text/index";
import { at, wrongWith } from "./store";

const CONVERSATIONS_MAX = 30;

export function Sent({ agent }: { agent: AgentTold }) {
  const isOpen = useSignal(false);
  const within = useSignal("");
  const shown = useSignal<AgentPrompt | null>(null);
  const wrong = useSignal("");
  const load = async () => {
    const chosen = within.value;
    const said = await wrongWith(async () => {
      const found = await api.get<AgentPrompt>(`${at(agent.name)}/prompt${chosen ? `?session_id=${encodeURIComponent(chosen)}` : ""}`);
      if (chosen === within.value) shown.value = found;
    });
    if (chosen === within.value) wrong.value = said;
  };
  useEffect(() => {
    if (isOpen.value) void load();
  }, [isOpen.value, within.value, agent.digest]);
  const its = ordered.value.filter((each) => (each.agent || MAIN) === agent.name).slice(0, CONVERSATIONS_MAX);
  const told = shown.value;
  return (
    <section class="sent" aria-labelledby="agent-sent">
      <h3 id="agent-sent"><button type="button" class="fold" aria-expanded={isOpen.value} onClick={() => (isOpen.value = !isOpen.value)}>{s.agents.sent}</button></h3>
      {isOpen.value && (
        <>
          <p class="buttons"><span class="note quiet">{s.agents.sentHelp}</span><span class="spread" />
            <label>{s.agents.sentIn}{" "}
              <select value={within.value} onChange={(event) => (within.value = event.currentTarget.value)}>
                <option value="">{s.agents.inNew}</option>
                {its.map((each) => <option key={each.id} value={each.id}>{titleOf(each)}</option>)}
              </select>
            </label>
            <button type="button" onClick={() => void load()}>{s.agents.refresh}</button></p>
          <p role="status" class="note wrong">{wrong.value}</p>
          {!told && !wrong.value && <p class="note quiet" role="status">{s.loading}</p>}
          {told && !wrong.value && <Told told={told} />}
        </>
      )}
    </section>
  );
}

function Told({ told }: { told: AgentPrompt }) {
  return (
    <>
      <p class="note quiet">{s.agents.sentTo(told.model, told.tokens, told.window_tokens)}</p>
      <h4>{s.agents.instructions}</h4>
      <pre class="command" tabIndex={0} role="region" aria-label={s.agents.instructions}>{told.instructions}</pre>
      <h4>{told.tools.length ? s.agents.toolsSent(told.tools.length) : s.agents.noTools}</h4>
      {told.tools.map((each) => (
        <details key={each.name}>
          <summary><b>{each.name}</b> <span class="note quiet">{each.description.split("\n")[0]}</span></summary>
          <pre class="command" tabIndex={0} role="region" aria-label={each.name}>{JSON.stringify(each, null, 2)}</pre>
        </details>
      ))}
    </>
  );
}
