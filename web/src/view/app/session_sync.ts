// Opening a conversation, keeping it in step with the server, and carrying what is written to it.

import { newKey, Refused } from "../../core/api";
import { Conversation } from "../../core/conversation";
import { openLine, type Line } from "../../core/tab_connection";
import type { ToTab } from "../../core/hub";
import { Outbox, type IfBusy, type Letter } from "../../core/outbox";
import type { Me, MessageList, ModelList, Session, TurnReceipt } from "../../core/protocol";
import { readAgents, takeWanted } from "../composer/agent_model";
import { readWaiting } from "../memory/pending";
import { api, base, current, hasPassword, leaving, letters, link, loading, looked, me, open, place, takeFeed, takeModels, tick } from "./store";
import { goTo } from "./navigation";

/** Few enough to be drawn at once, and more than a screen holds. */
const PAGE = 20;
/** To be asked for when somebody looks for something far up. */
export const PAGE_MAX = 200;
const LETTERS = "holdfast.letters";

let line: Line | null = null;
let frame = 0;
let begun: string | null = null;
/** The conversation that a message from the empty page has led to, for as long as nobody goes elsewhere. */
let ledTo: string | null = null;
/** Whether somebody has been elsewhere since they last sent something from the empty page. */
let hasLeft = false;
/** The conversation that was open last, if the server has it: a new one names it as the one before. */
let before: string | null = null;

/** Draw what has changed with the next frame, however much comes before it. */
function redraw(): void {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    tick.value += 1;
  });
}

function take(message: ToTab): void {
  switch (message.type) {
    case "link":
      link.value = message.state;
      if (message.state === "connected") void carry();
      if (message.state === "signed_out") void whoAmI();
      return;
    case "feed":
      return takeFeed(message.name, message.content);
    case "gone":
      if (message.session === current.value) loading.value = "gone";
      return;
    case "events":
      if (message.session !== current.value) return;
      for (const event of message.events) open.conversation.add(event);
      outbox.arrived(message.events.flatMap((event) => (event.kind === "turn_accepted" && event.key) || []));
      if (open.conversation.deleted) loading.value = "gone";
      if (message.events.some((event) => event.kind.startsWith("memory_"))) void readWaiting();
      return redraw();
  }
}

const PAGE_KEY = "holdfast.page-key";

/** Keep what the server gave this page when it signed in; other ports of this host never see it. */
export function keepPageKey(key: string): void {
  localStorage.setItem(PAGE_KEY, key);
}

export async function whoAmI(): Promise<void> {
  api.pageKey = localStorage.getItem(PAGE_KEY) ?? "";
  try {
    me.value = await api.get<Me>("api/me");
  } catch (error) {
    if (!(error instanceof Refused) || error.problem.status !== 401) return;
    hasPassword.value = error.problem.password ?? false;
    me.value = { signed_in: false, name: "", rights: [], browser: true };
  }
}

/** Begin: who is here, which model answers, and the line to the server. */
export async function begin(): Promise<void> {
  await whoAmI();
  if (!me.value?.signed_in) return;
  line ??= openLine(base, take);
  api.reached = () => link.value === "lost" && line?.({ type: "reachable" });
  line({ type: "retry", pageKey: api.pageKey });
  letters.value = outbox.letters();
  void askModels();
  void readAgents().catch(() => undefined);
}

async function askModels(): Promise<void> {
  try {
    takeModels(await api.get<ModelList>("api/models"));
  } catch {
    return; // Told by the line, and asked again when it is back.
  }
}

/** Open a conversation; null is the empty page on which a new one begins. */
export async function show(id: string | null): Promise<void> {
  if (current.value && current.value !== id) line?.({ type: "leave", session: current.value });
  if (current.value && !loading.value) before = current.value;
  if (id === null && !place.value) rememberBefore();
  if (id !== ledTo) {
    ledTo = null;
    hasLeft ||= id !== null || place.value !== "";
  }
  current.value = id;
  open.conversation = new Conversation();
  loading.value = id ? "loading" : "";
  redraw();
  if (id) await load(id);
}

/** Whoever begins anew is done with what was open: it is remembered while they think of what to say. */
function rememberBefore(): void {
  if (!before || leaving.value.has(before)) return;
  if (current.value !== before || open.conversation.memory.told()?.state !== "waiting") return;
  void api.post("api/memory/commit", { session_id: before }).catch(() => undefined);
}

/** What neither the list nor the pages tell of a conversation: how much its model reads at once, for one. */
export async function look(id: string): Promise<Session> {
  const found = await api.get<Session>(`api/sessions/${id}`);
  if (id === current.value) looked.value = found;
  return found;
}

/** Whether a conversation is remembered: the pages do not tell, and the events may be long past. */
async function askRemembered(id: string, { memory }: Conversation): Promise<void> {
  try {
    const [waiting, { remembered_at }] = await Promise.all([readWaiting(), look(id)]);
    memory.addWaiting(waiting.filter((each) => each.session_id === id));
    memory.rememberedAt = remembered_at ?? 0;
    memory.isRead = true;
    redraw();
  } catch {
    return; // A convenience: the memory page says what is wrong.
  }
}

async function load(id: string): Promise<void> {
  const conversation = open.conversation;
  try {
    const page = await api.get<MessageList>(`api/sessions/${id}/messages?limit=${PAGE}`);
    if (conversation !== open.conversation) return;
    conversation.addPage(page);
    outbox.arrived();
    loading.value = "";
    tick.value += 1;
    line?.({ type: "follow", session: id, after: conversation.head });
    void seen(id);
    void askRemembered(id, conversation);
  } catch (error) {
    if (conversation !== open.conversation || !(error instanceof Refused)) return;
    loading.value = error.problem.status === 404 ? "gone" : "failed";
    if (error.passes) setTimeout(() => conversation === open.conversation && void load(id), 1_000);
  }
}

/** The page before what is loaded; false when there is none. */
export async function loadEarlier(limit = PAGE): Promise<boolean> {
  const { conversation } = open;
  const id = current.value;
  if (!id || conversation.before === null) return false;
  const page = await api.get<MessageList>(`api/sessions/${id}/messages?limit=${limit}&before=${conversation.before}`);
  if (conversation !== open.conversation) return false;
  conversation.addPage({ ...page, head: 0 });
  tick.value += 1;
  return true;
}

/** The reader has seen it all, as far as this page has it. */
export async function seen(id: string): Promise<void> {
  if (document.hidden || id !== current.value) return;
  await api.post(`api/sessions/${id}/seen`, { seq: open.conversation.head }).catch(() => undefined);
}

const outbox = new Outbox(
  { read: () => localStorage.getItem(LETTERS), write: (text) => localStorage.setItem(LETTERS, text) },
  {
    begin: async (letter) => {
      begun = await beginFor(letter);
      return begun;
    },
    send: async (session, letter) => {
      const { text, key, if_busy, attachments } = letter;
      const told = await api.post<TurnReceipt>(`api/sessions/${session}/turns`, { text, key, if_busy, ...(attachments.length ? { attachments: attachments.map(({ id, name, anyway }) => ({ id, name, ...(anyway ? { anyway } : {}) })) } : {}) });
      // The conversation went on in another: whoever waits for the answer does so there.
      if (told.session_id !== session && current.value === session) goTo(told.session_id);
      return { session: told.session_id, seq: told.seq };
    },
  },
  (kept) => {
    letters.value = kept;
  },
  ({ session, seq }) => session === current.value && seq <= open.conversation.head,
  async (work) => {
    if (!navigator.locks) return work();
    await navigator.locks.request("holdfast.letters", { ifAvailable: true }, async (lock) => (lock ? work() : undefined));
  },
);

async function beginFor({ previous, agent, model }: Letter): Promise<string> {
  const chosen = { ...(agent ? { agent } : {}), ...(model ? { model } : {}) };
  try {
    return (await api.post<Session>("api/sessions", { ...chosen, ...(previous ? { previous_session_id: previous } : {}) })).id;
  } catch (error) {
    // Deleted meanwhile: then there is nothing before this one.
    if (!previous || !(error instanceof Refused) || error.problem.code !== "no_such_session") throw error;
    return (await api.post<Session>("api/sessions", chosen)).id;
  }
}

/** Keep a message and send it; when the server is away it goes out once that is back. */
export async function send(text: string, if_busy: IfBusy = "queue", attachments: Letter["attachments"] = []): Promise<void> {
  begun = null;
  if (current.value === null) hasLeft = false;
  const previous = current.value === null && before && !leaving.value.has(before) ? { previous: before } : {};
  const chosen = current.value === null ? takeWanted() : {};
  outbox.add({ key: newKey(), session: current.value, ...previous, ...chosen, text, attachments, if_busy, at: Date.now() });
  await carry();
}

export function begunHere(): string | null {
  return ledTo;
}

async function carry(): Promise<void> {
  const done = await outbox.flush();
  // The conversation that the first letter began, unless someone has moved on meanwhile.
  if (begun && !hasLeft && current.value === null) goTo(ledTo = begun);
  begun = null;
  if (!done) setTimeout(() => void carry(), 1_500);
}

export function discard(key: string): void {
  outbox.remove(key);
  // What was written after it waited for it.
  void carry();
}
