// The state of the agents page: the list of agents, and drafts of their files.

import { signal } from "@preact/signals";
import { ApiError } from "../../core/api";
import type { AgentListing, AgentText } from "../../core/protocol";
import { loadUser } from "../app/session_sync";
import { agents } from "../composer/agent_model";
import { api } from "../app/store";

export const agentList = signal<AgentListing | null>(null);
export const loadError = signal("");
/** An agent's file as read; `digest` is empty if there is none. */
export interface AgentFile {
  text: string;
  digest: string;
}
export const NO_FILE: AgentFile = { text: "", digest: "" };
/** Unsaved drafts by the agent's name, each with the file that it edits; kept while other pages are shown. */
export const drafts = new Map<string, { text: string; base: AgentFile }>();

export const NAME_PATTERN = /^[a-z0-9][a-z0-9_-]{0,39}$/;

/** Run a request. Return its error message, or "". */
export async function errorTextOf(request: () => Promise<unknown>): Promise<string> {
  try {
    await request();
    return "";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.problem.status === 401) await loadUser();
    return error.message;
  }
}

export async function refreshAgents(): Promise<void> {
  loadError.value = await errorTextOf(async () => {
    agentList.value = await api.get<AgentListing>("api/agents");
    agents.value = agentList.value.agents;
  });
}

export const agentPath = (name: string) => `api/agents/${encodeURIComponent(name)}`;

/** Return an agent's file. An agent that does not exist yet has none. */
export async function readAgentFile(name: string): Promise<AgentFile> {
  try {
    const { agent, text } = await api.get<AgentText>(agentPath(name));
    return { text, digest: agent.digest };
  } catch (error) {
    if (error instanceof ApiError && error.problem.status === 404) return NO_FILE;
    throw error;
  }
}

/** Write only if the file is as it was read, so that nobody else's change is lost. */
export const ifMatchHeaders = (digest: string): Record<string, string> => (digest ? { "if-match": digest } : { "if-none-match": "*" });
