// What users do. Each failure shows a notice and has no other effect.

import type { Signal } from "@preact/signals";
import { ApiError } from "../../core/api";
import type { RunProgress } from "../../core/transcript_types";
import type { OutgoingMessage } from "../../core/outbox";
import type { MemoryCommitResult, SessionInfo } from "../../core/protocol";
import { currentModel } from "../composer/agent_model";
import { showDetails, isDetailsOpen } from "../details/store";
import { attachments, clearStoredUploads } from "../composer/uploads";
import { clearNewDraft, draftText } from "../composer/draft";
import { discardMessage, loadUser } from "./session_sync";
import { markCommitRequested, loadQueue, clearCommitRequested, queueEntries } from "../memory/pending";
import { api, showQuestion, chosenVersion, current, deletingSessions, deletingNotes, notice, active, listedSessions, panel, showNotice, showProgress, session, sessions, UNDO_MS, type NoticeAction } from "./store";
import { s } from "../text/index";
import { goTo } from "./navigation";

type Decision = "approve" | "deny" | "rerun" | "mark_done" | "skip" | "answer";
export interface Answer {
  decision: Decision;
  scope?: "once" | "session" | "always";
  rule?: string;
  arguments?: string;
  reason?: string;
  text?: string;
  /** The call's result for the model, with `mark_done`. */
  result?: string;
  choices?: string[];
}

/** Run an action and show a notice if it fails. Return whether it succeeded. */
export async function attempt(action: () => Promise<unknown>): Promise<boolean> {
  try {
    await action();
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (error.problem.status === 401) await loadUser();
    showNotice(describeError(error));
    return false;
  }
}

/** Return a readable text of the server's error. */
export function describeError(error: ApiError): string {
  return s.refusals[error.problem.code] ?? error.message;
}

const sessionPath = (id: string, action = "") => `api/sessions/${id}${action && `/${action}`}`;

export const actions = {
  answer: (run: string, call: string, answer: Answer) => attempt(() => api.post(`api/runs/${run}/tools/${call}`, answer)),
  resume: (run: string) => attempt(() => api.post(`api/runs/${run}/resume`)),

  stop: () => cancelRun("accepted", "running", "waiting"),
  /** Stop a working run, not one that waits for the user. */
  stopUnlessWaiting: () => cancelRun("accepted", "running"),

  /** Put a refused message back into the composer, before the text there. */
  returnToComposer: (message: OutgoingMessage) => {
    discardMessage(message.key);
    draftText.value = [message.text, draftText.value].filter(Boolean).join("\n\n");
    attachments.restore(message.attachments);
    document.querySelector<HTMLElement>(".composer textarea")?.focus();
  },

  retry: (turn_id: string | null = null) => withCurrentSession((id) => attempt(() => api.post(sessionPath(id, "retry"), turn_id ? { turn_id } : {}))),
  undo: (turn_id: string | null = null) =>
    withCurrentSession((id) =>
      attempt(async () => {
        const undone = turn_id ?? active.conversation.orderedTurns().findLast((turn) => turn.live)?.id;
        await api.post(sessionPath(id, "undo"), turn_id ? { turn_id } : {});
        showNotice(s.undone, ...(undone ? [{ text: s.undo, run: () => actions.restore(undone) }] : []));
      }),
    ),
  /** Restore a turn; without one, what was undone last. */
  restore: (turn_id: string | null = null) =>
    withCurrentSession((id) =>
      attempt(async () => {
        await api.post(sessionPath(id, "restore"), turn_id ? { turn_id } : {});
        if (notice.value?.text === s.undone) notice.value = null;
      }),
    ),
  /** Show another version of a message and what followed it. */
  chooseVersion: (turn: string, label: string) => {
    chosenVersion.value = { turn, label };
    return actions.restore(turn);
  },
  /** Change the text of a message; its files stay. */
  edit: (turn_id: string, text: string, attachments: readonly { id: string; name: string; anyway?: boolean }[]) =>
    withCurrentSession((id) => attempt(() => api.post(sessionPath(id, "edit"), { turn_id, text, ...(attachments.length ? { attachments } : {}) }))),

  /** Clear the context. Clearing commits pending turns to memory, so ask first whether to exclude them. */
  clear: () =>
    withCurrentSession(async (id) => {
      const clear = () => attempt(() => api.post(sessionPath(id, "clear")));
      if (!(await hasPending(id))) return clear();
      const remembers = sessions.value.get(id)?.remember ?? true;
      const clearWithoutCommit = () =>
        attempt(async () => {
          await api.patch(sessionPath(id), { remember: false });
          await api.post(sessionPath(id, "clear")).finally(() => api.patch(sessionPath(id), { remember: remembers }));
        });
      showQuestion(s.clearAsks, { text: s.clearIt, run: clear }, { text: s.memory.exclude, run: clearWithoutCommit }, { text: s.cancel, run: () => undefined });
      return false;
    }),

  branch: (turn_id: string | null = null) =>
    withCurrentSession((id) =>
      attempt(async () => {
        const branch = await api.post<SessionInfo>(sessionPath(id, "fork"), turn_id ? { turn_id } : {});
        goTo(branch.id);
      }),
    ),

  /** Summarise older messages for the model. It takes as long as an answer. */
  summarise: (id: string) =>
    attempt(async () => {
      showProgress(s.summarising);
      await api.post(sessionPath(id, "compact"));
      showNotice(s.summarised);
    }),

  /** Continue in a new session that begins with a summary of this one. */
  continueSession: (id: string) =>
    attempt(async () => {
      showProgress(s.continuing);
      const successor = await api.post<SessionInfo>(sessionPath(id, "continue"));
      notice.value = null;
      if (current.value === id) goTo(successor.id);
      else showNotice(s.continuedElsewhere, { text: s.openIt, run: () => goTo(successor.id) });
    }),

  rename: (id: string, title: string) => attempt(() => api.patch(sessionPath(id), { title })),
  archive: (id: string, archived: boolean) =>
    attempt(async () => {
      await api.patch(sessionPath(id), { archived });
      showNotice(archived ? s.archived : s.unarchived, { text: s.undo, run: () => attempt(() => api.patch(sessionPath(id), { archived: !archived })) });
    }),
  pin: (id: string, pinned: boolean) => attempt(() => api.patch(sessionPath(id), { pinned })),

  remember: (id: string, remember: boolean) =>
    attempt(async () => {
      await api.patch(sessionPath(id), { remember });
      if (remember) showNotice(s.memory.included);
      else showNotice(s.memory.excluded, { text: s.memory.openMemory, run: () => goTo("memory") });
    }),

  /** Commit a session to memory now, or all of them. Return the outcome as text. */
  commitNow: async (session_id?: string): Promise<string> => {
    let result = "";
    let isRunning = false;
    const sessionIds = session_id ? [session_id] : queueEntries.value.map((row) => row.session_id);
    markCommitRequested(sessionIds);
    await attempt(async () => {
      const { outcome, paid, detail } = await api.post<MemoryCommitResult>("api/memory/commit", session_id ? { session_id } : {});
      result = outcome === "failed" ? s.memory.commitFailed(detail, paid > 0) : s.memory.outcomes[outcome];
      isRunning = outcome === "working" || outcome === "no_owner";
    });
    if (!isRunning) clearCommitRequested(sessionIds);
    return result;
  },

  /** Hide a session now, and delete it when Undo has expired or the user leaves. Offer to delete its notes as well. */
  delete: (id: string) => {
    let query = "";
    const wasOpen = current.value === id;
    const deleteNow = async () => {
      cancel();
      if (!(await attempt(() => api.delete(sessionPath(id) + query)))) markDeleting(id, false);
    };
    const cancel = () => {
      clearTimeout(timer);
      timer = undefined;
      removeEventListener("pagehide", deleteNow);
    };
    const undo: NoticeAction = {
      text: s.undo,
      run: () => {
        cancel();
        markDeleting(id, false);
        if (wasOpen && location.hash.length < 2) goTo(id);
      },
    };
    /** Show a notice and restart the time to undo. */
    const showUndo = (text: string, ...more: NoticeAction[]) => {
      clearTimeout(timer);
      timer = setTimeout(deleteNow, UNDO_MS);
      showNotice(text, undo, ...more);
    };
    const deleteNotes: NoticeAction = { text: s.deleteNotes, run: () => ((query = "?notes=delete"), setMembership(deletingNotes, id, true), showUndo(s.deletedWithNotes)) };
    let timer: ReturnType<typeof setTimeout> | undefined;
    markDeleting(id, true);
    if (wasOpen) goTo("");
    addEventListener("pagehide", deleteNow);
    showUndo(s.deleted);
    const shown = notice.value;
    void countNotes(id).then((notes) => notes && timer && notice.value === shown && showUndo(s.deletedButNotes(notes), deleteNotes));
  },

  signOut: () =>
    attempt(async () => {
      await api.post("api/sign-out");
      clearNewDraft();
      clearStoredUploads();
      location.reload();
    }),
};

async function cancelRun(...statuses: RunProgress["status"][]): Promise<boolean> {
  const run = [...active.conversation.runs.values()].find((each) => statuses.includes(each.status));
  return run ? attempt(() => api.post(`api/runs/${run.id}/cancel`)) : false;
}

/** Return whether a session has pending queue entries. */
async function hasPending(id: string): Promise<boolean> {
  return (await loadQueue()).some((row) => row.session_id === id && row.state !== "retracting");
}

/** Return how many notes were saved from a session; 0 if the server cannot be asked. */
async function countNotes(id: string): Promise<number> {
  try {
    return (await api.get<SessionInfo>(sessionPath(id))).notes ?? 0;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return 0;
  }
}

function markDeleting(id: string, isDeleting: boolean): void {
  setMembership(deletingSessions, id, isDeleting);
  if (!isDeleting) setMembership(deletingNotes, id, false);
}

function setMembership(set: Signal<ReadonlySet<string>>, id: string, isIn: boolean): void {
  const members = new Set(set.value);
  if (isIn) members.add(id);
  else members.delete(id);
  set.value = members;
}

async function withCurrentSession(action: (id: string) => Promise<boolean>): Promise<boolean> {
  return current.value ? action(current.value) : false;
}

/**
 * Answer the first waiting call of the current session. The list of all questions comes by other events and may be
 * older, so it is not used. A question that needs more than yes or no can only be declined.
 */
function answerFirstCall(answer: Answer): unknown {
  const call = active.conversation.waitingCalls().find((each) => !each.asked || answer.decision === "deny");
  return call ? actions.answer(call.run_id ?? "", call.id, answer) : showNotice(s.noOpenQuestion);
}

/** Return the status of the current session. Only the list of sessions knows how it ended. */
function currentStatus(): string {
  const statuses = [...active.conversation.runs.values()].map((run) => run.status);
  if (statuses.includes("waiting")) return s.status.needs_you;
  if (statuses.includes("running") || statuses.includes("accepted")) return s.status.working;
  return s.status[session.value?.status ?? "idle"];
}

/** Open the newest session with these words in its title; without words, open the palette. */
function openByTitle(words: string): void {
  if (!words) return void (panel.value = "palette");
  const match = listedSessions.value.find((each) => each.title.toLowerCase().includes(words.toLowerCase()));
  if (match) goTo(match.id);
  else showNotice(s.noSuchConversation(words));
}

/** Slash commands: the word after the slash, called with the rest of the line. */
export const slashCommands: Record<string, (rest: string) => unknown> = {
  new: () => goTo(""),
  undo: () => actions.undo(),
  restore: () => actions.restore(),
  retry: () => actions.retry(),
  stop: () => actions.stop(),
  status: () => showNotice(currentStatus()),
  model: () => showNotice(currentModel.value),
  sessions: () => (panel.value = "palette"),
  switch: (rest) => openByTitle(rest.trim()),
  approve: () => answerFirstCall({ decision: "approve" }),
  deny: (rest) => answerFirstCall({ decision: "deny", ...(rest.trim() ? { reason: rest.trim() } : {}) }),
  title: (rest) => current.value && rest && actions.rename(current.value, rest),
  branch: () => actions.branch(),
  clear: () => actions.clear(),
  summarise: () => withCurrentSession(actions.summarise),
  summarize: () => withCurrentSession(actions.summarise),
  compact: () => withCurrentSession(actions.summarise),
  continue: () => withCurrentSession(actions.continueSession),
  archive: () => current.value && actions.archive(current.value, !session.value?.archived),
  remember: () => current.value && actions.commitNow(current.value).then((said) => said && showNotice(said)),
  memory: () => goTo("memory"),
  agents: () => goTo("agents"),
  details: () => showDetails(!isDetailsOpen.value),
  search: () => (panel.value = "search"),
  settings: () => (panel.value = "settings"),
  help: () => (panel.value = "keyboard"),
};
