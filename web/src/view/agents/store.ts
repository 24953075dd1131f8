// What the page knows of agents: the list as the server has it, and what was written here and not saved.

import { signal } from "@preact/signals";
import { Refused } from "../../core/api";
import type { AgentsTold, AgentText } from "../../core/protocol";
import { whoAmI } from "../app/session_sync";
import { agents } from "../composer/agent_model";
import { api } from "../app/store";

export const told = signal<AgentsTold | null>(null);
export const problem = signal("");
/** An agent's file as it was read; `digest` is empty where there is none. */
export interface Kept {
  text: string;
  digest: string;
}
export const NO_FILE: Kept = { text: "", digest: "" };
/** What was typed and not saved, by the agent's name, and the file it was typed into; kept while one looks elsewhere. */
export const drafts = new Map<string, { text: string; base: Kept }>();

export const NAME = /^[a-z0-9][a-z0-9_-]{0,39}$/;

/** Do it; what is wrong, in a sentence. */
export async function wrongWith(work: () => Promise<unknown>): Promise<string> {
  try {
    await work();
    return "";
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.problem.status === 401) await whoAmI();
    return error.message;
  }
}

export async function look(): Promise<void> {
  problem.value = await wrongWith(async () => {
    told.value = await api.get<AgentsTold>("api/agents");
    agents.value = told.value.agents;
  });
}

export const at = (name: string) => `api/agents/${encodeURIComponent(name)}`;

/** What an agent's file says now. An agent that is not there yet has none. */
export async function read(name: string): Promise<Kept> {
  try {
    const { agent, text } = await api.get<AgentText>(at(name));
    return { text, digest: agent.digest };
  } catch (error) {
    if (error instanceof Refused && error.problem.status === 404) return NO_FILE;
    throw error;
  }
}

/** Only what is still as it was read is changed: nobody else's work is lost. */
export const unchanged = (digest: string): Record<string, string> => (digest ? { "if-match": digest } : { "if-none-match": "*" });
