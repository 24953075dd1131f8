// The state of the page: signals that the views read. Only server responses and `actions` change them.

import { batch, computed, signal } from "@preact/signals";
import { ApiClient } from "../../core/api";
import type { ConnectionStatus } from "../../core/stream_connection";
import { Conversation } from "../../core/conversation";
import type { OutgoingMessage } from "../../core/outbox";
import type { FeedChanged, FeedRemoved, FeedSnapshot, Me, AvailableModels, ModelInfo, QuestionInfo, SessionInfo, ActiveModel } from "../../core/protocol";
import { s } from "../text/index";

export const base = new URL("./", document.baseURI).href;
export const api = new ApiClient(base);

export type Panel = "" | "settings" | "search" | "keyboard" | "palette" | "list" | "output";

/** What the main area shows: a session, the memory page, or the agents page with agent `pageAgent`. */
export const page = signal<"" | "memory" | "agents">("");
export const pageAgent = signal("");
export const me = signal<Me | null>(null);
/** Whether a password is accepted here. */
export const hasPassword = signal(false);
export const connectionStatus = signal<ConnectionStatus>("connecting");
export const models = signal<readonly ActiveModel[]>([]);
/** The models to choose from. */
export const availableModels = signal<readonly ModelInfo[]>([]);

/** Set which models are in use, and which can be chosen. */
export function setModels({ models: used, providers }: AvailableModels): void {
  models.value = used;
  availableModels.value = providers.flatMap((each) => each.models);
}

export const sessions = signal<ReadonlyMap<string, SessionInfo>>(new Map());
/** True once the list of sessions has arrived. */
export const isSessionListLoaded = signal(false);
export const questions = signal<ReadonlyMap<string, readonly QuestionInfo[]>>(new Map());
export const outgoingMessages = signal<readonly OutgoingMessage[]>([]);
export const now = signal(Date.now());
/** Whether the tab is hidden. */
export const isTabHidden = signal(document.hidden);
export const panel = signal<Panel>("");
/** An action that a notice offers. */
export interface NoticeAction {
  text: string;
  run: () => unknown;
}
/** `at` is the address that it belongs to. */
export const notice = signal<{ text: string; acts: readonly NoticeAction[]; at: string } | null>(null);
export const showsArchived = signal(false);
/** The cursors for the rest of the list and of the archive; null: all of it is loaded. */
export type SessionListKind = "list" | "archive";
export const nextCursors = signal<Readonly<Record<SessionListKind, string | null>>>({ list: null, archive: null });
/** Sessions about to be deleted: hidden, and still on the server. */
export const deletingSessions = signal<ReadonlySet<string>>(new Set());
/** Those of them whose notes are to be deleted too. */
export const deletingNotes = signal<ReadonlySet<string>>(new Set());

/** The current session; `tick` increases with every change to it. */
export const current = signal<string | null>(null);
export const tick = signal(0);
export const loading = signal<"" | "loading" | "failed" | "gone">("");

export const active = { conversation: new Conversation() };

/** The message or the call to scroll to. */
export const scrollTarget = signal("");

/** Changes with everything except appended text. */
export const structureVersion = computed(() => (void tick.value, `${current.value} ${active.conversation.structureVersion}`));

/** The current session as last requested: the list may not contain it, and has fewer fields. */
export const loadedSession = signal<SessionInfo | null>(null);
const currentLoadedSession = computed(() => (loadedSession.value?.id === current.value ? loadedSession.value : null));
export const session = computed(() => (current.value ? (sessions.value.get(current.value) ?? currentLoadedSession.value) : null));
/** The context window of the current model; 0: unknown. */
export const windowTokens = computed(() => currentLoadedSession.value?.window_tokens ?? 0);
/** The server's default model; `activeModel` is the one in use. */
export const defaultModel = computed(() => models.value.at(-1) ?? null);
export const activeModel = computed(() => models.value[0] ?? null);
export const isDemo = computed(() => defaultModel.value?.name === "demo");
export const openQuestions = computed(() => [...questions.value.values()].flat());

/** Return the title of a session; without one, its first words. */
export const sessionTitle = (row: SessionInfo | null) => row?.title || (row?.opening && row.parent_session_id ? s.aBranch(row.opening) : row?.opening) || s.untitled;

/** The version of a message that was just chosen, and the button that chose it: that button gets the focus there. */
export const chosenVersion = signal<{ turn: string; label: string } | null>(null);

export const hasArchived = computed(() => [...sessions.value.values()].some((row) => row.archived && !deletingSessions.value.has(row.id)));

export const sessionListKind = computed<SessionListKind>(() => (showsArchived.value ? "archive" : "list"));

export const listedSessions = computed(() => {
  const shown = [...sessions.value.values()].filter((each) => each.archived === (sessionListKind.value === "archive") && !deletingSessions.value.has(each.id));
  return shown.sort((a, b) => b.updated_at - a.updated_at);
});

/** Apply one event of the feed. */
export function applyFeedEvent(name: string, content: unknown): void {
  batch(() => {
    if (name === "feed_snapshot") {
      const { sessions: rows, questions: sessionQuestions, more } = content as FeedSnapshot;
      nextCursors.value = { list: more ? "" : null, archive: "" };
      sessions.value = new Map(rows.map((row) => [row.id, row]));
      isSessionListLoaded.value = true;
      const grouped = new Map<string, QuestionInfo[]>();
      for (const question of sessionQuestions) grouped.set(question.session_id, [...(grouped.get(question.session_id) ?? []), question]);
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

function setQuestions(id: string, sessionQuestions: readonly QuestionInfo[]): void {
  if (!sessionQuestions.length && !questions.value.has(id)) return;
  const all = new Map(questions.value);
  if (sessionQuestions.length) all.set(id, sessionQuestions);
  else all.delete(id);
  questions.value = all;
}

/** How long an action can be undone. */
export const UNDO_MS = 20_000;

/** Show a notice with optional actions for a few seconds. */
export function showNotice(text: string, ...actions: NoticeAction[]): void {
  showQuestion(text, ...actions);
  const shown = notice.value;
  setTimeout(() => {
    if (notice.value === shown) notice.value = null;
  }, actions.length ? UNDO_MS : 5_000);
}

/** Show a question with actions until it is answered or replaced, or the user navigates. */
export function showQuestion(text: string, ...actions: NoticeAction[]): void {
  notice.value = { text, acts: actions, at: location.hash };
}

/** Show progress until another notice replaces it. */
export function showProgress(text: string): void {
  showQuestion(text);
}

/** Remove a notice of another address, unless only the notice offers to undo something. */
export function dismissNotice(): void {
  const shown = notice.value;
  if (shown && shown.at !== location.hash && (shown.text === s.undone || !shown.acts.some((act) => act.text === s.undo))) notice.value = null;
}
