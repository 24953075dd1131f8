// The form to choose the agent and the model of a session.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { AvailableModels } from "../../core/protocol";
import { currentAgent, agents, currentChoice, changeChoice, MAIN_AGENT, agentModel, readAgents, type AgentModelChoice } from "./agent_model";
import { modelSummary, ModelPicker } from "../shared/model_picker";
import { api, availableModels, setModels } from "../app/store";
import { s } from "../text/index";
import { settingsText } from "../text/settings";

export function AgentModelForm({ close }: { close: () => void }) {
  const errorText = useSignal("");
  const first = useRef<HTMLSelectElement>(null);
  const runRequest = async (request: () => Promise<unknown>) => {
    errorText.value = "";
    try {
      await request();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      errorText.value = error.message;
    }
  };
  useEffect(() => {
    // Focus it only if the focus is still in the dialog: the user may have moved on while this was loading.
    if (first.current?.closest("[role=dialog]")?.contains(document.activeElement)) first.current.focus();
    void runRequest(readAgents);
    void runRequest(async () => setModels(await api.get<AvailableModels>("api/models")));
  }, []);
  const change = (choice: Partial<AgentModelChoice>) => void runRequest(() => changeChoice(choice));
  const { agent, model } = currentChoice.value;
  const agentInfo = currentAgent.value;
  const names = agents.value.map((each) => each.name);
  const modelInfo = availableModels.value.find((each) => each.name === (model || agentModel(agentInfo)));
  return (
    <>
      <label>{s.agents.agent}
        <select ref={first} value={agent || MAIN_AGENT} onChange={(event) => change({ agent: event.currentTarget.value })}>
          {[...names, ...(names.includes(agent || MAIN_AGENT) ? [] : [agent || MAIN_AGENT])].map((each) => <option key={each} value={each}>{each}</option>)}
        </select>
      </label>
      {agentInfo?.description && <p class="note quiet">{agentInfo.description}</p>}
      {agentInfo?.error && <p class="note wrong">{agentInfo.error}</p>}
      {!agentInfo && names.length > 0 && <p class="note wrong">{s.agents.missing(agent)}</p>}
      <ModelPicker label={settingsText.model} value={model} placeholder={s.agents.agentDefault(agentModel(agentInfo))} options={availableModels.value} onChoose={(name) => change({ model: name })} />
      {modelInfo && <p class="note quiet">{modelSummary(modelInfo)}</p>}
      {model && <p class="buttons"><button type="button" class="quiet" onClick={() => change({ model: "" })}>{s.agents.useAgentDefault}</button></p>}
      <p role="status" class="note wrong">{errorText.value}</p>
      <p class="buttons"><a class="button" href={`#agents/${agent || MAIN_AGENT}`} onClick={close}>{s.agents.see}</a><span class="spacer" /><button type="button" onClick={close}>{s.close}</button></p>
    </>
  );
}
