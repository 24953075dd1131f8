// Choosing the agent and the model of a conversation.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Refused } from "../../core/api";
import type { ModelList } from "../../core/protocol";
import { agentHere, agents, choice, choose, MAIN, modelOf, readAgents, type Choice } from "./agent_model";
import { aboutModel, Picker } from "../shared/model_picker";
import { api, offers, takeModels } from "../app/store";
import { s } from "../text/index";
import { set } from "../text/settings";

export function Choices({ close }: { close: () => void }) {
  const wrong = useSignal("");
  const first = useRef<HTMLSelectElement>(null);
  const work = async (what: () => Promise<unknown>) => {
    wrong.value = "";
    try {
      await what();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = error.message;
    }
  };
  useEffect(() => {
    // Only if the keyboard is still in the dialog: people may have moved on while this was loading.
    if (first.current?.closest("[role=dialog]")?.contains(document.activeElement)) first.current.focus();
    void work(readAgents);
    void work(async () => takeModels(await api.get<ModelList>("api/models")));
  }, []);
  const change = (wanted: Partial<Choice>) => void work(() => choose(wanted));
  const { agent, model } = choice.value;
  const here = agentHere.value;
  const names = agents.value.map((each) => each.name);
  const known = offers.value.find((each) => each.name === (model || modelOf(here)));
  return (
    <>
      <label>{s.agents.agent}
        <select ref={first} value={agent || MAIN} onChange={(event) => change({ agent: event.currentTarget.value })}>
          {[...names, ...(names.includes(agent || MAIN) ? [] : [agent || MAIN])].map((each) => <option key={each} value={each}>{each}</option>)}
        </select>
      </label>
      {here?.description && <p class="note quiet">{here.description}</p>}
      {here?.error && <p class="note wrong">{here.error}</p>}
      {!here && names.length > 0 && <p class="note wrong">{s.agents.gone(agent)}</p>}
      <Picker label={set.model} value={model} placeholder={s.agents.asAgent(modelOf(here))} offers={offers.value} choose={(name) => change({ model: name })} />
      {known && <p class="note quiet">{aboutModel(known)}</p>}
      {model && <p class="buttons"><button type="button" class="quiet" onClick={() => change({ model: "" })}>{s.agents.asAgentAgain}</button></p>}
      <p role="status" class="note wrong">{wrong.value}</p>
      <p class="buttons"><a class="button" href={`#agents/${agent || MAIN}`} onClick={close}>{s.agents.see}</a><span class="spread" /><button type="button" onClick={close}>{s.close}</button></p>
    </>
  );
}
