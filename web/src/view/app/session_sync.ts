// Open a session, keep it in sync with the server, and send its messages.

import { newIdempotencyKey, ApiError } from "../../core/api";
import { Conversation } from "../../core/conversation";
import { openTabConnection, type PostToHub } from "../../core/tab_connection";
import type { HubMessage } from "../../core/hub";
import { Outbox, type IfBusy, type OutgoingMessage } from "../../core/outbox";
import type { Me, MessageList, AvailableModels, SessionInfo, TurnReceipt } from "../../core/protocol";
import { readAgents, takeNewSessionChoice } from "../composer/agent_model";
import { loadQueue } from "../memory/pending";
import { api, base, current, hasPassword, deletingSessions, outgoingMessages, connectionStatus, loading, loadedSession, me, active, page, applyFeedEvent, setModels, tick } from "./store";
import { goTo } from "./navigation";

/** Few enough to render at once, and more than a screen shows. */
const PAGE_SIZE = 20;
/** The page size to reach something far up. */
export const PAGE_SIZE_MAX = 200;
const OUTBOX_KEY = "holdfast.letters";

let postToHub: PostToHub | null = null;
let frame = 0;
let createdSession: string | null = null;
/** The session that the first message from the empty page created, until the user navigates. */
let sessionFromNew: string | null = null;
/** Whether the user has navigated since the last send from the empty page. */
let hasNavigated = false;
/** The last open session, if the server has it: a new session names it as its predecessor. */
let previousSession: string | null = null;

/** Render all changes with the next animation frame. */
function scheduleRedraw(): void {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    tick.value += 1;
  });
}

function handleHubMessage(message: HubMessage): void {
  switch (message.type) {
    case "link":
      connectionStatus.value = message.state;
      if (message.state === "connected") void flushOutbox();
      if (message.state === "signed_out") void loadUser();
      return;
    case "feed":
      return applyFeedEvent(message.name, message.content);
    case "gone":
      if (message.session === current.value) loading.value = "gone";
      return;
    case "events":
      if (message.session !== current.value) return;
      for (const event of message.events) active.conversation.add(event);
      outbox.confirm(message.events.flatMap((event) => (event.kind === "turn_accepted" && event.key) || []));
      if (active.conversation.deleted) loading.value = "gone";
      if (message.events.some((event) => event.kind.startsWith("memory_"))) void loadQueue();
      return scheduleRedraw();
  }
}

const PAGE_KEY = "holdfast.page-key";

/** Store the key that the server gave this page at sign-in. Other ports of the host cannot read it. */
export function storePageKey(key: string): void {
  localStorage.setItem(PAGE_KEY, key);
}

export async function loadUser(): Promise<void> {
  api.pageKey = localStorage.getItem(PAGE_KEY) ?? "";
  try {
    me.value = await api.get<Me>("api/me");
  } catch (error) {
    if (!(error instanceof ApiError) || error.problem.status !== 401) return;
    hasPassword.value = error.problem.password ?? false;
    me.value = { signed_in: false, name: "", rights: [], browser: true };
  }
}

/** Load the user and the models, and connect to the server. */
export async function connect(): Promise<void> {
  await loadUser();
  if (!me.value?.signed_in) return;
  postToHub ??= openTabConnection(base, handleHubMessage);
  api.onResponse = () => connectionStatus.value === "lost" && postToHub?.({ type: "reachable" });
  postToHub({ type: "retry", pageKey: api.pageKey });
  outgoingMessages.value = outbox.messages();
  void loadModels();
  void readAgents().catch(() => undefined);
}

async function loadModels(): Promise<void> {
  try {
    setModels(await api.get<AvailableModels>("api/models"));
  } catch {
    return; // The connection shows the error, and loads the models again when it is back.
  }
}

/** Open a session; null opens the empty page for a new one. */
export async function openSession(id: string | null): Promise<void> {
  if (current.value && current.value !== id) postToHub?.({ type: "leave", session: current.value });
  if (current.value && !loading.value) previousSession = current.value;
  if (id === null && !page.value) commitPrevious();
  if (id !== sessionFromNew) {
    sessionFromNew = null;
    hasNavigated ||= id !== null || page.value !== "";
  }
  current.value = id;
  active.conversation = new Conversation();
  loading.value = id ? "loading" : "";
  scheduleRedraw();
  if (id) await loadConversation(id);
}

/** Commit the previous session to memory when the user begins a new one. */
function commitPrevious(): void {
  if (!previousSession || deletingSessions.value.has(previousSession)) return;
  if (current.value !== previousSession || active.conversation.memoryCommits.status()?.state !== "waiting") return;
  void api.post("api/memory/commit", { session_id: previousSession }).catch(() => undefined);
}

/** Load what neither the list nor the pages contain, for example the model's context window. */
export async function loadSession(id: string): Promise<SessionInfo> {
  const session = await api.get<SessionInfo>(`api/sessions/${id}`);
  if (id === current.value) loadedSession.value = session;
  return session;
}

/** Load the memory status of a session: pages do not contain it, and its events may be too old. */
async function loadMemoryStatus(id: string, { memoryCommits: memory }: Conversation): Promise<void> {
  try {
    const [waiting, { remembered_at }] = await Promise.all([loadQueue(), loadSession(id)]);
    memory.addQueueEntries(waiting.filter((each) => each.session_id === id));
    memory.committedAt = remembered_at ?? 0;
    memory.isLoaded = true;
    scheduleRedraw();
  } catch {
    return; // The memory page reports the error.
  }
}

async function loadConversation(id: string): Promise<void> {
  const conversation = active.conversation;
  try {
    const page = await api.get<MessageList>(`api/sessions/${id}/messages?limit=${PAGE_SIZE}`);
    if (conversation !== active.conversation) return;
    conversation.addPage(page);
    outbox.confirm();
    loading.value = "";
    tick.value += 1;
    postToHub?.({ type: "follow", session: id, after: conversation.head });
    void markSeen(id);
    void loadMemoryStatus(id, conversation);
  } catch (error) {
    if (conversation !== active.conversation || !(error instanceof ApiError)) return;
    loading.value = error.problem.status === 404 ? "gone" : "failed";
    if (error.isRetryable) setTimeout(() => conversation === active.conversation && void loadConversation(id), 1_000);
  }
}

/** Load the page of earlier messages. Return false if there is none. */
export async function loadEarlier(limit = PAGE_SIZE): Promise<boolean> {
  const { conversation } = active;
  const id = current.value;
  if (!id || conversation.earlierCursor === null) return false;
  const page = await api.get<MessageList>(`api/sessions/${id}/messages?limit=${limit}&before=${conversation.earlierCursor}`);
  if (conversation !== active.conversation) return false;
  conversation.addPage({ ...page, head: 0 });
  tick.value += 1;
  return true;
}

/** Tell the server that the reader has seen everything that this page has. */
export async function markSeen(id: string): Promise<void> {
  if (document.hidden || id !== current.value) return;
  await api.post(`api/sessions/${id}/seen`, { seq: active.conversation.head }).catch(() => undefined);
}

const outbox = new Outbox(
  { read: () => localStorage.getItem(OUTBOX_KEY), write: (text) => localStorage.setItem(OUTBOX_KEY, text) },
  {
    createSession: async (message) => {
      createdSession = await createSession(message);
      return createdSession;
    },
    send: async (session, message) => {
      const { text, key, if_busy, attachments } = message;
      const receipt = await api.post<TurnReceipt>(`api/sessions/${session}/turns`, { text, key, if_busy, ...(attachments.length ? { attachments: attachments.map(({ id, name, anyway }) => ({ id, name, ...(anyway ? { anyway } : {}) })) } : {}) });
      // The successor answers: follow it there.
      if (receipt.session_id !== session && current.value === session) goTo(receipt.session_id);
      return { session: receipt.session_id, seq: receipt.seq };
    },
  },
  (messages) => {
    outgoingMessages.value = messages;
  },
  ({ session, seq }) => session === current.value && seq <= active.conversation.head,
  async (action) => {
    if (!navigator.locks) return action();
    await navigator.locks.request("holdfast.letters", { ifAvailable: true }, async (lock) => (lock ? action() : undefined));
  },
);

async function createSession({ previous, agent, model }: OutgoingMessage): Promise<string> {
  const choice = { ...(agent ? { agent } : {}), ...(model ? { model } : {}) };
  try {
    return (await api.post<SessionInfo>("api/sessions", { ...choice, ...(previous ? { previous_session_id: previous } : {}) })).id;
  } catch (error) {
    // The previous session was deleted meanwhile.
    if (!previous || !(error instanceof ApiError) || error.problem.code !== "no_such_session") throw error;
    return (await api.post<SessionInfo>("api/sessions", choice)).id;
  }
}

/** Store a message and send it; without a connection it is sent later. */
export async function send(text: string, if_busy: IfBusy = "queue", attachments: OutgoingMessage["attachments"] = []): Promise<void> {
  createdSession = null;
  if (current.value === null) hasNavigated = false;
  const previous = current.value === null && previousSession && !deletingSessions.value.has(previousSession) ? { previous: previousSession } : {};
  const choice = current.value === null ? takeNewSessionChoice() : {};
  outbox.add({ key: newIdempotencyKey(), session: current.value, ...previous, ...choice, text, attachments, if_busy, at: Date.now() });
  await flushOutbox();
}

export function startedSession(): string | null {
  return sessionFromNew;
}

async function flushOutbox(): Promise<void> {
  const isDone = await outbox.flush();
  // Open the session that the first message created, unless the user has navigated.
  if (createdSession && !hasNavigated && current.value === null) goTo(sessionFromNew = createdSession);
  createdSession = null;
  if (!isDone) setTimeout(() => void flushOutbox(), 1_500);
}

export function discardMessage(key: string): void {
  outbox.remove(key);
  // Messages that waited for it can be sent now.
  void flushOutbox();
}
