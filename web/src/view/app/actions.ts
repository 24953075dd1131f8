// What people do. Whatever goes wrong is said in a sentence, and nothing else happens.

import type { Signal } from "@preact/signals";
import { Refused } from "../../core/api";
import type { Work } from "../../core/transcript_types";
import type { Letter } from "../../core/outbox";
import type { CommitTold, Session } from "../../core/protocol";
import { modelHere } from "../composer/agent_model";
import { beside, isBeside } from "../details/store";
import { attaching, forgetFiles } from "../composer/uploads";
import { forgetDraft, text } from "../composer/draft";
import { discard, whoAmI } from "./session_sync";
import { hurry, readWaiting, unhurry, waiting } from "../memory/pending";
import { api, ask, chosen, current, leaving, leavingNotes, notice, open, ordered, panel, say, sayMeanwhile, session, sessions, UNDO_MS, type Act } from "./store";
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

/** Do it, and say what went wrong; whether it went well. */
export async function attempt(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (error.problem.status === 401) await whoAmI();
    say(inWords(error));
    return false;
  }
}

/** Why the server said no, as people say it. */
export function inWords(error: Refused): string {
  return s.refusals[error.problem.code] ?? error.message;
}

const at = (id: string, verb = "") => `api/sessions/${id}${verb && `/${verb}`}`;

export const actions = {
  answer: (run: string, call: string, answer: Answer) => attempt(() => api.post(`api/runs/${run}/tools/${call}`, answer)),
  resume: (run: string) => attempt(() => api.post(`api/runs/${run}/resume`)),

  stop: () => stopIf("accepted", "running", "waiting"),
  /** Only what is being worked on: what waits for a person does so until they say something. */
  stopWork: () => stopIf("accepted", "running"),

  /** Have a message that was not taken where one writes again, before what is written there. */
  rewrite: (letter: Letter) => {
    discard(letter.key);
    text.value = [letter.text, text.value].filter(Boolean).join("\n\n");
    attaching.giveBack(letter.attachments);
    document.querySelector<HTMLElement>(".composer textarea")?.focus();
  },

  retry: (turn_id: string | null = null) => here((id) => attempt(() => api.post(at(id, "retry"), turn_id ? { turn_id } : {}))),
  undo: (turn_id: string | null = null) =>
    here((id) =>
      attempt(async () => {
        const undone = turn_id ?? open.conversation.ordered().findLast((turn) => turn.live)?.id;
        await api.post(at(id, "undo"), turn_id ? { turn_id } : {});
        say(s.undone, ...(undone ? [{ text: s.undo, run: () => actions.restore(undone) }] : []));
      }),
    ),
  /** Without a turn, restore what was undone last. */
  restore: (turn_id: string | null = null) =>
    here((id) =>
      attempt(async () => {
        await api.post(at(id, "restore"), turn_id ? { turn_id } : {});
        if (notice.value?.text === s.undone) notice.value = null;
      }),
    ),
  /** Show another version of a message and what followed it. */
  choose: (turn: string, label: string) => {
    chosen.value = { turn, label };
    return actions.restore(turn);
  },
  /** Other words for a message; its files stay with it. */
  edit: (turn_id: string, text: string, attachments: readonly { id: string; name: string; anyway?: boolean }[]) =>
    here((id) => attempt(() => api.post(at(id, "edit"), { turn_id, text, ...(attachments.length ? { attachments } : {}) }))),

  /** What waits to be remembered is, once it is cleared: whoever does not want that says so first. */
  clear: () =>
    here(async (id) => {
      const clear = () => attempt(() => api.post(at(id, "clear")));
      if (!(await waits(id))) return clear();
      const wanted = sessions.value.get(id)?.remember ?? true;
      const apart = () =>
        attempt(async () => {
          await api.patch(at(id), { remember: false });
          await api.post(at(id, "clear")).finally(() => api.patch(at(id), { remember: wanted }));
        });
      ask(s.clearAsks, { text: s.clearIt, run: clear }, { text: s.memory.notIt, run: apart }, { text: s.cancel, run: () => undefined });
      return false;
    }),

  branch: (turn_id: string | null = null) =>
    here((id) =>
      attempt(async () => {
        const branch = await api.post<Session>(at(id, "fork"), turn_id ? { turn_id } : {});
        goTo(branch.id);
      }),
    ),

  /** The model reads a summary in place of older messages from now on; it takes as long as an answer. */
  summarise: (id: string) =>
    attempt(async () => {
      sayMeanwhile(s.summarising);
      await api.post(at(id, "compact"));
      say(s.summarised);
    }),

  /** Go on in a new conversation that begins with what this one came to. */
  goOn: (id: string) =>
    attempt(async () => {
      sayMeanwhile(s.goingOn);
      const next = await api.post<Session>(at(id, "continue"));
      notice.value = null;
      if (current.value === id) goTo(next.id);
      else say(s.wentOn, { text: s.openIt, run: () => goTo(next.id) });
    }),

  rename: (id: string, title: string) => attempt(() => api.patch(at(id), { title })),
  archive: (id: string, archived: boolean) =>
    attempt(async () => {
      await api.patch(at(id), { archived });
      say(archived ? s.archived : s.unarchived, { text: s.undo, run: () => attempt(() => api.patch(at(id), { archived: !archived })) });
    }),
  pin: (id: string, pinned: boolean) => attempt(() => api.patch(at(id), { pinned })),

  remember: (id: string, remember: boolean) =>
    attempt(async () => {
      await api.patch(at(id), { remember });
      if (remember) say(s.memory.keptIn);
      else say(s.memory.keptOut, { text: s.memory.see, run: () => goTo("memory") });
    }),

  /** Have a conversation remembered now, or all of them; what came of it, in words. */
  rememberNow: async (session_id?: string): Promise<string> => {
    let said = "";
    let goesOn = false;
    const wanted = session_id ? [session_id] : waiting.value.map((row) => row.session_id);
    hurry(wanted);
    await attempt(async () => {
      const { outcome, paid, detail } = await api.post<CommitTold>("api/memory/commit", session_id ? { session_id } : {});
      said = outcome === "failed" ? s.memory.couldNot(detail, paid > 0) : s.memory.outcomes[outcome];
      goesOn = outcome === "working" || outcome === "no_owner";
    });
    if (!goesOn) unhurry(wanted);
    return said;
  },

  /** Hide it now, and delete it once Undo has expired or the person leaves; offer to delete its notes as well. */
  delete: (id: string) => {
    let query = "";
    const wasOpen = current.value === id;
    const go = async () => {
      stay();
      if (!(await attempt(() => api.delete(at(id) + query)))) leave(id, false);
    };
    const stay = () => {
      clearTimeout(timer);
      timer = undefined;
      removeEventListener("pagehide", go);
    };
    const undo: Act = {
      text: s.undo,
      run: () => {
        stay();
        leave(id, false);
        if (wasOpen && location.hash.length < 2) goTo(id);
      },
    };
    /** Say it, with as much time to undo from now on. */
    const tell = (text: string, ...more: Act[]) => {
      clearTimeout(timer);
      timer = setTimeout(go, UNDO_MS);
      say(text, undo, ...more);
    };
    const withNotes: Act = { text: s.deleteNotes, run: () => ((query = "?notes=delete"), mark(leavingNotes, id, true), tell(s.deletedWithNotes)) };
    let timer: ReturnType<typeof setTimeout> | undefined;
    leave(id, true);
    if (wasOpen) goTo("");
    addEventListener("pagehide", go);
    tell(s.deleted);
    const said = notice.value;
    void notesOf(id).then((notes) => notes && timer && notice.value === said && tell(s.deletedButNotes(notes), withNotes));
  },

  signOut: () =>
    attempt(async () => {
      await api.post("api/sign-out");
      forgetDraft();
      forgetFiles();
      location.reload();
    }),
};

async function stopIf(...statuses: Work["status"][]): Promise<boolean> {
  const work = [...open.conversation.work.values()].find((each) => statuses.includes(each.status));
  return work ? attempt(() => api.post(`api/runs/${work.id}/cancel`)) : false;
}

/** Whether some of it is still to be remembered. */
async function waits(id: string): Promise<boolean> {
  return (await readWaiting()).some((row) => row.session_id === id && row.state !== "retracting");
}

/** How many notes were saved from it; none while the server cannot be asked. */
async function notesOf(id: string): Promise<number> {
  try {
    return (await api.get<Session>(at(id))).notes ?? 0;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return 0;
  }
}

function leave(id: string, isLeaving: boolean): void {
  mark(leaving, id, isLeaving);
  if (!isLeaving) mark(leavingNotes, id, false);
}

function mark(set: Signal<ReadonlySet<string>>, id: string, isIn: boolean): void {
  const all = new Set(set.value);
  if (isIn) all.add(id);
  else all.delete(id);
  set.value = all;
}

async function here(work: (id: string) => Promise<boolean>): Promise<boolean> {
  return current.value ? work(current.value) : false;
}

/**
 * Answer the first question of the open conversation. The list of all questions is not used: it comes by other events,
 * and may be older. A question that is not answered by yes or no can only be declined.
 */
function answerHere(answer: Answer): unknown {
  const asked = open.conversation.asked().find((each) => !each.asked || answer.decision === "deny");
  return asked ? actions.answer(asked.run_id ?? "", asked.id, answer) : say(s.nothingAsked);
}

/** Return what the open conversation does now. Only the list of conversations knows how it ended. */
function statusHere(): string {
  const statuses = [...open.conversation.work.values()].map((work) => work.status);
  if (statuses.includes("waiting")) return s.status.needs_you;
  if (statuses.includes("running") || statuses.includes("accepted")) return s.status.working;
  return s.status[session.value?.status ?? "idle"];
}

/** Open the newest conversation with these words in its title; without any, have one chosen. */
function switchTo(words: string): void {
  if (!words) return void (panel.value = "palette");
  const found = ordered.value.find((each) => each.title.toLowerCase().includes(words.toLowerCase()));
  if (found) goTo(found.id);
  else say(s.noSuchConversation(words));
}

/** Slash commands: what is typed after the slash, and the rest of the line. */
export const slash: Record<string, (rest: string) => unknown> = {
  new: () => goTo(""),
  undo: () => actions.undo(),
  restore: () => actions.restore(),
  retry: () => actions.retry(),
  stop: () => actions.stop(),
  status: () => say(statusHere()),
  model: () => say(modelHere.value),
  sessions: () => (panel.value = "palette"),
  switch: (rest) => switchTo(rest.trim()),
  approve: () => answerHere({ decision: "approve" }),
  deny: (rest) => answerHere({ decision: "deny", ...(rest.trim() ? { reason: rest.trim() } : {}) }),
  title: (rest) => current.value && rest && actions.rename(current.value, rest),
  branch: () => actions.branch(),
  clear: () => actions.clear(),
  summarise: () => here(actions.summarise),
  summarize: () => here(actions.summarise),
  compact: () => here(actions.summarise),
  continue: () => here(actions.goOn),
  archive: () => current.value && actions.archive(current.value, !session.value?.archived),
  remember: () => current.value && actions.rememberNow(current.value).then((said) => said && say(said)),
  memory: () => goTo("memory"),
  agents: () => goTo("agents"),
  details: () => beside(!isBeside.value),
  search: () => (panel.value = "search"),
  settings: () => (panel.value = "settings"),
  help: () => (panel.value = "keyboard"),
};
