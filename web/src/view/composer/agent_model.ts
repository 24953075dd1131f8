// The agent and the model of the current session, or of the next new one.

import { computed, signal } from "@preact/signals";
import type { AgentListing, AgentInfo, PromptListing, PromptInfo, SessionInfo } from "../../core/protocol";
import { api, current, defaultModel, session, sessions } from "../app/store";

export const MAIN_AGENT = "main";

/** An empty agent is the main agent; an empty model is the agent's own. */
export interface AgentModelChoice {
  readonly agent: string;
  readonly model: string;
}

const NONE: AgentModelChoice = { agent: "", model: "" };

export const agents = signal<readonly AgentInfo[]>([]);
export const prompts = signal<readonly PromptInfo[]>([]);
/** The choice for the next new session. */
export const newSessionChoice = signal<AgentModelChoice>(NONE);
export const currentChoice = computed<AgentModelChoice>(() => (current.value ? (session.value ?? NONE) : newSessionChoice.value));
export const currentAgent = computed(() => agents.value.find((each) => each.name === (currentChoice.value.agent || MAIN_AGENT)) ?? null);
/** Return an agent's own model. */
export const agentModel = (agent: AgentInfo | null): string => agent?.model || (defaultModel.value?.name ?? "");
export const currentModel = computed(() => currentChoice.value.model || agentModel(currentAgent.value));
/** The name without its provider. */
export const currentModelName = computed(() => currentModel.value.slice(currentModel.value.indexOf(":") + 1));

/** Load the agents. After a failure, the next caller loads them again. */
export async function readAgents(): Promise<void> {
  agents.value = (await api.get<AgentListing>("api/agents")).agents;
}

export async function readPrompts(): Promise<void> {
  prompts.value = (await api.get<PromptListing>("api/prompts")).prompts;
}

/** Change the agent or the model from the next message on. Throw ApiError if the server refuses. */
export async function changeChoice(change: Partial<AgentModelChoice>): Promise<void> {
  if (!current.value) return void (newSessionChoice.value = { ...newSessionChoice.value, ...change });
  const changed = await api.patch<SessionInfo>(`api/sessions/${current.value}`, change);
  sessions.value = new Map(sessions.value).set(changed.id, changed);
}

/** Return the choice for a new session and reset it. */
export function takeNewSessionChoice(): Partial<AgentModelChoice> {
  const { agent, model } = newSessionChoice.value;
  newSessionChoice.value = NONE;
  return { ...(agent ? { agent } : {}), ...(model ? { model } : {}) };
}
