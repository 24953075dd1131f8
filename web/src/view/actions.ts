// What people do. Whatever goes wrong is said in a sentence, and nothing else happens.

import { Refused } from "../core/api";
import type { CommitTold, Session } from "../core/protocol";
import { whoAmI } from "./following";
import { api, current, open, panel, say, sessions, showsArchived } from "./state";
import { s } from "./strings";

type Decision = "approve" | "deny" | "rerun" | "mark_done" | "skip";
export interface Answer {
  decision: Decision;
  scope?: "once" | "session" | "always";
  rule?: string;
  arguments?: string;
  reason?: string;
}

/** Do it, and say what went wrong; whether it went well. */
export async function attempt(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.problem.status === 401) await whoAmI();
    say(error.problem.code === "tool_refused" ? s.answeredElsewhere : error.message);
    return false;
  }
}

const at = (id: string, verb = "") => `api/sessions/${id}${verb && `/${verb}`}`;

export const actions = {
  answer: (run: string, call: string, answer: Answer) => attempt(() => api.post(`api/runs/${run}/tools/${call}`, answer)),
  resume: (run: string) => attempt(() => api.post(`api/runs/${run}/resume`)),

  stop: () => {
    const work = [...open.conversation.work.values()].find((each) => ["accepted", "running", "waiting"].includes(each.status));
    return work ? attempt(() => api.post(`api/runs/${work.id}/cancel`)) : Promise.resolve(false);
  },

  retry: (turn_id: string | null = null) => here((id) => attempt(() => api.post(at(id, "retry"), turn_id ? { turn_id } : {}))),
  undo: (turn_id: string | null = null) => here((id) => attempt(() => api.post(at(id, "undo"), turn_id ? { turn_id } : {}))),
  edit: (turn_id: string, text: string) => here((id) => attempt(() => api.post(at(id, "edit"), { turn_id, text }))),
  clear: () => here((id) => attempt(() => api.post(at(id, "clear")))),

  branch: (turn_id: string | null = null) =>
    here((id) =>
      attempt(async () => {
        const branch = await api.post<Session>(at(id, "fork"), turn_id ? { turn_id } : {});
        location.hash = branch.id;
      }),
    ),

  rename: (id: string, title: string) => attempt(() => api.patch(at(id), { title })),
  archive: (id: string, archived: boolean) => attempt(() => api.patch(at(id), { archived })),
  pin: (id: string, pinned: boolean) => attempt(() => api.patch(at(id), { pinned })),

  remember: (id: string, remember: boolean) => attempt(() => api.patch(at(id), { remember })),

  /** Have a conversation remembered now, or all of them; what came of it, in words. */
  rememberNow: async (session_id?: string): Promise<string> => {
    let said = "";
    await attempt(async () => {
      const { outcome, paid, detail } = await api.post<CommitTold>("api/memory/commit", session_id ? { session_id } : {});
      said = outcome === "failed" ? s.memory.couldNot(detail, paid > 0) : s.memory.outcomes[outcome];
    });
    return said;
  },

  /** Gone from the list at once, from the disk only when there was time to think again. */
  delete: (id: string) => {
    const row = sessions.value.get(id);
    const hide = new Map(sessions.value);
    hide.delete(id);
    sessions.value = hide;
    if (current.value === id) location.hash = "";
    const timer = setTimeout(() => void attempt(() => api.delete(at(id))), 8_000);
    say(s.deleted, {
      text: s.undo,
      run: () => {
        clearTimeout(timer);
        if (row) sessions.value = new Map(sessions.value).set(id, row);
      },
    });
  },

  signOut: () => attempt(() => api.post("api/sign-out").then(() => location.reload())),
};

async function here(work: (id: string) => Promise<boolean>): Promise<boolean> {
  return current.value ? work(current.value) : false;
}

/** Slash commands: what is typed after the slash, and the rest of the line. */
export const slash: Record<string, (rest: string) => unknown> = {
  new: () => (location.hash = ""),
  undo: () => actions.undo(),
  retry: () => actions.retry(),
  stop: () => actions.stop(),
  title: (rest) => current.value && rest && actions.rename(current.value, rest),
  branch: () => actions.branch(),
  clear: () => actions.clear(),
  archive: () => current.value && actions.archive(current.value, !showsArchived.value),
  remember: () => current.value && actions.rememberNow(current.value).then((said) => said && say(said)),
  memory: () => (location.hash = "memory"),
  search: () => (panel.value = "search"),
  settings: () => (panel.value = "settings"),
  help: () => (panel.value = "keyboard"),
};
