// Who answers in the conversation that is open, or in the one that is about to begin: its agent and its model.

import { computed, signal } from "@preact/signals";
import type { AgentsTold, AgentTold, PromptsTold, PromptTold, Session } from "../../core/protocol";
import { api, current, model, session, sessions } from "../app/store";

export const MAIN = "main";

/** What is empty is as it is without a choice: the agent that every server has, and the agent's own model. */
export interface Choice {
  readonly agent: string;
  readonly model: string;
}

const NONE: Choice = { agent: "", model: "" };

export const agents = signal<readonly AgentTold[]>([]);
export const prompts = signal<readonly PromptTold[]>([]);
/** What was chosen for a conversation that has not begun. */
export const wanted = signal<Choice>(NONE);
export const choice = computed<Choice>(() => (current.value ? (session.value ?? NONE) : wanted.value));
export const agentHere = computed(() => agents.value.find((each) => each.name === (choice.value.agent || MAIN)) ?? null);
/** The model that an agent has by itself. */
export const modelOf = (agent: AgentTold | null): string => agent?.model || (model.value?.name ?? "");
export const modelHere = computed(() => choice.value.model || modelOf(agentHere.value));
/** Its name without its provider's. */
export const shortModelHere = computed(() => modelHere.value.slice(modelHere.value.indexOf(":") + 1));

/** Read which agents there are; what cannot be read now is read when somebody looks again. */
export async function readAgents(): Promise<void> {
  agents.value = (await api.get<AgentsTold>("api/agents")).agents;
}

export async function readPrompts(): Promise<void> {
  prompts.value = (await api.get<PromptsTold>("api/prompts")).prompts;
}

/** Have another agent or model answer from the next message on. Raises Refused. */
export async function choose(change: Partial<Choice>): Promise<void> {
  if (!current.value) return void (wanted.value = { ...wanted.value, ...change });
  const changed = await api.patch<Session>(`api/sessions/${current.value}`, change);
  sessions.value = new Map(sessions.value).set(changed.id, changed);
}

/** What was chosen, for the conversation that begins with it; the next one is without a choice. */
export function takeWanted(): Partial<Choice> {
  const { agent, model: named } = wanted.value;
  wanted.value = NONE;
  return { ...(agent ? { agent } : {}), ...(named ? { model: named } : {}) };
}
