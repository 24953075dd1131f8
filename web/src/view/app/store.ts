// What the page knows: signals that the views read, changed only by what the server says and by `actions`.

import { batch, computed, signal } from "@preact/signals";
import { Api } from "../../core/api";
import type { Link } from "../../core/stream_connection";
import { Conversation } from "../../core/conversation";
import type { Letter } from "../../core/outbox";
import type { FeedChanged, FeedRemoved, FeedSnapshot, Me, ModelList, ModelTold, Question, Session, UsedModel } from "../../core/protocol";
import { s } from "../text/index";

export const base = new URL("./", document.baseURI).href;
export const api = new Api(base);

export type Panel = "" | "settings" | "search" | "keyboard" | "palette" | "list" | "output";

/** What the middle of the page shows: a conversation, what is remembered, or the agents; of these, `about` one. */
export const place = signal<"" | "memory" | "agents">("");
export const about = signal("");
export const me = signal<Me | null>(null);
/** Whether a password lets people in here. */
export const hasPassword = signal(false);
export const link = signal<Link>("connecting");
export const models = signal<readonly UsedModel[]>([]);
/** The models that can be chosen. */
export const offers = signal<readonly ModelTold[]>([]);

/** Take in which models answer, and which can be chosen. */
export function takeModels({ models: used, providers }: ModelList): void {
  models.value = used;
  offers.value = providers.flatMap((each) => each.models);
}

export const sessions = signal<ReadonlyMap<string, Session>>(new Map());
/** True once the list of conversations has arrived. */
export const isListed = signal(false);
export const questions = signal<ReadonlyMap<string, readonly Question[]>>(new Map());
export const letters = signal<readonly Letter[]>([]);
export const now = signal(Date.now());
/** Whether nobody looks at this tab. */
export const hidden = signal(document.hidden);
export const panel = signal<Panel>("");
/** Something that can be done about what was said in passing. */
export interface Act {
  text: string;
  run: () => unknown;
}
/** `at` is the place that it is about. */
export const notice = signal<{ text: string; acts: readonly Act[]; at: string } | null>(null);
export const showsArchived = signal(false);
/** From where the rest of the list and of the archive can be read; null: all of it is here. */
export type Shelf = "list" | "archive";
export const rest = signal<Readonly<Record<Shelf, string | null>>>({ list: null, archive: null });
/** Conversations that are about to be deleted: out of sight, and not yet gone. */
export const leaving = signal<ReadonlySet<string>>(new Set());
/** Those of them whose notes are about to be deleted too. */
export const leavingNotes = signal<ReadonlySet<string>>(new Set());

/** The conversation that is open; `tick` moves with every change to it. */
export const current = signal<string | null>(null);
export const tick = signal(0);
export const loading = signal<"" | "loading" | "failed" | "gone">("");

export const open = { conversation: new Conversation() };

/** The message or the call that somebody looks for, and goes to. */
export const sought = signal("");

/** Moves with every change to it but the growing of a text. */
export const shape = computed(() => (void tick.value, `${current.value} ${open.conversation.shape}`));

/** The conversation that is open as it was when it was asked for: the list may not have it, and does not say all. */
export const looked = signal<Session | null>(null);
const opened = computed(() => (looked.value?.id === current.value ? looked.value : null));
export const session = computed(() => (current.value ? (sessions.value.get(current.value) ?? opened.value) : null));
/** How much the model that answers here reads at once; 0: that is not known. */
export const windowTokens = computed(() => opened.value?.window_tokens ?? 0);
/** The server's own model, which agents have that name none; and the one that answers where nothing was chosen. */
export const model = computed(() => models.value.at(-1) ?? null);
export const answering = computed(() => models.value[0] ?? null);
export const isDemo = computed(() => model.value?.name === "demo");
export const waiting = computed(() => [...questions.value.values()].flat());

/** What a conversation is called: until it has a title, how it begins. */
export const titleOf = (row: Session | null) => row?.title || (row?.opening && row.parent_session_id ? s.aBranch(row.opening) : row?.opening) || s.untitled;

/** The version of a message that was just chosen, and by which button: the same button gets the focus there. */
export const chosen = signal<{ turn: string; label: string } | null>(null);

export const hasArchived = computed(() => [...sessions.value.values()].some((row) => row.archived && !leaving.value.has(row.id)));

export const shelf = computed<Shelf>(() => (showsArchived.value ? "archive" : "list"));

export const ordered = computed(() => {
  const shown = [...sessions.value.values()].filter((each) => each.archived === (shelf.value === "archive") && !leaving.value.has(each.id));
  return shown.sort((a, b) => b.updated_at - a.updated_at);
});

/** Take in one event of the feed. */
export function takeFeed(name: string, content: unknown): void {
  batch(() => {
    if (name === "feed_snapshot") {
      const { sessions: rows, questions: asked, more } = content as FeedSnapshot;
      rest.value = { list: more ? "" : null, archive: "" };
      sessions.value = new Map(rows.map((row) => [row.id, row]));
      isListed.value = true;
      const grouped = new Map<string, Question[]>();
      for (const question of asked) grouped.set(question.session_id, [...(grouped.get(question.session_id) ?? []), question]);
      questions.value = grouped;
    } else if (name === "feed_changed") {
      const { session: row, questions: asked } = content as FeedChanged;
      sessions.value = new Map(sessions.value).set(row.id, row);
      setQuestions(row.id, asked);
    } else if (name === "feed_removed") {
      const { session_id } = content as FeedRemoved;
      const rest = new Map(sessions.value);
      rest.delete(session_id);
      sessions.value = rest;
      setQuestions(session_id, []);
    }
  });
}

function setQuestions(id: string, asked: readonly Question[]): void {
  if (!asked.length && !questions.value.has(id)) return;
  const all = new Map(questions.value);
  if (asked.length) all.set(id, asked);
  else all.delete(id);
  questions.value = all;
}

/** The time in which something can be undone. */
export const UNDO_MS = 20_000;

/** Say something in passing, with what can be done about it. */
export function say(text: string, ...acts: Act[]): void {
  ask(text, ...acts);
  const said = notice.value;
  setTimeout(() => {
    if (notice.value === said) notice.value = null;
  }, acts.length ? UNDO_MS : 5_000);
}

/** Ask something; the question stays until it is answered, something else is said, or the person goes elsewhere. */
export function ask(text: string, ...acts: Act[]): void {
  notice.value = { text, acts, at: location.hash };
}

/** Say what is under way, until something else is said. */
export function sayMeanwhile(text: string): void {
  ask(text);
}

/** Remove a notice about a place that was left, unless only the notice offers to undo something. */
export function leaveNotice(): void {
  const said = notice.value;
  if (said && said.at !== location.hash && (said.text === s.undone || !said.acts.some((act) => act.text === s.undo))) notice.value = null;
}
