// The page: draws a transcript, sends what is typed, follows the conversation by its cursor.

import { api, comeIn, signOut } from "./api.js";
import { KINDS, Transcript } from "./transcript.js";
import { draw } from "./entry.js";

const el = Object.fromEntries([...document.querySelectorAll("[id]")].map((node) => [node.id, node]));
const here = { id: null, transcript: null, source: null, drawn: new Map(), frame: 0, list: "" };
const DOTS = { working: "Working", needs_you: "Needs you", failed: "Failed", interrupted: "Stopped when the server stopped" };

const say = (text) => { el.line.textContent = text; };
const wait = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// A person's action: what goes wrong is said, and nothing else happens.
const attempt = (action) => async (event) => {
  event?.preventDefault();
  try { await action(event); } catch (error) { say(error.message); }
};

async function open(id) {
  here.source?.close();
  Object.assign(here, { id, transcript: id ? new Transcript() : null, source: null });
  here.drawn.clear();
  el.transcript.replaceChildren();
  say("");
  el.tools.hidden = !id;
  el.title.textContent = "";
  if (id) await load(id);
  paint();
  await showList();
}

async function load(id) {
  try {
    const [session, page] = await Promise.all([api("GET", `/api/sessions/${id}`), api("GET", `/api/sessions/${id}/messages`)]);
    if (here.id !== id) return;
    el.title.textContent = session.title || "Untitled";
    here.transcript.addPage(page);
    paint();
    el.scroll.scrollTop = el.scroll.scrollHeight;
    follow(id);
  } catch (error) {
    if (here.id !== id) return;
    if (error.status === 404) { location.hash = ""; return; }
    if (error.status === 401) await comeIn();
    say("Connection lost; trying again…");
    await wait(1000);
    if (here.id === id) await load(id);
  }
}

function follow(id) {
  const source = new EventSource(`api/sessions/${id}/events?after=${here.transcript.head}`);
  here.source = source;
  for (const kind of KINDS) source.addEventListener(kind, ({ data }) => take(id, JSON.parse(data)));
  source.onopen = () => { if (el.line.textContent.startsWith("Connection")) say(""); };
  source.onerror = async () => {
    if (here.source !== source) return;
    say("Connection lost; trying again…");
    if (source.readyState !== EventSource.CLOSED) return; // The browser comes back by itself, with its cursor.
    await wait(1000);
    if (here.source === source) await load(id);
  };
}

function take(id, event) {
  if (here.id !== id) return;
  if (event.kind === "session_deleted") { location.hash = ""; return; }
  if (event.kind === "session_renamed") el.title.textContent = event.title;
  here.transcript.add(event);
  if (!event.kind.endsWith("_appended")) showList();
  here.frame ||= requestAnimationFrame(() => { here.frame = 0; paint(); });
}

function paint() {
  const { transcript, drawn } = here;
  el.empty.textContent = transcript?.entries.size ? "" : "Everything you send is on disk before it is answered.";
  el.earlier.hidden = !transcript?.before;
  if (!transcript) { el.stop.hidden = true; return; }
  const atEnd = el.scroll.scrollHeight - el.scroll.scrollTop - el.scroll.clientHeight < 40;
  const entries = transcript.ordered();
  const open = transcript.moved || drawn.size !== entries.length;
  entries.forEach((entry, place) => {
    if (!transcript.changed.has(entry.id) && drawn.has(entry.id)) return;
    const node = draw(transcript, entries, place, decide);
    drawn.get(entry.id)?.replaceWith(node);
    drawn.set(entry.id, node);
  });
  if (open) el.transcript.replaceChildren(...entries.map((entry) => drawn.get(entry.id)));
  transcript.changed.clear();
  transcript.moved = false;
  const work = [...transcript.runs.values()].find((run) => ["accepted", "running", "waiting"].includes(run.status));
  el.stop.hidden = !work;
  el.stop.value = work?.id ?? "";
  if (atEnd) el.scroll.scrollTop = el.scroll.scrollHeight;
}

// What the buttons inside the transcript do.
const decide = {
  tool: (run, call, decision, more = () => ({})) => attempt(() => {
    const rest = more(); // Null: they thought better of it.
    return rest && api("POST", `/api/runs/${run}/tools/${call}`, { decision, ...rest });
  }),
  resume: (run) => attempt(() => api("POST", `/api/runs/${run}/resume`)),
  retry: (turn_id) => attempt(() => api("POST", `/api/sessions/${here.id}/retry`, { turn_id })),
};

async function showList() {
  let sessions;
  try { ({ sessions } = await api("GET", "/api/sessions?limit=100")); } catch { return; }
  const shown = JSON.stringify([here.id, sessions.map((each) => [each.id, each.title, each.status, age(each.updated_at)])]);
  if (shown === here.list) return;
  here.list = shown;
  el.list.replaceChildren(...sessions.map((session) => {
    const row = document.createElement("button");
    row.setAttribute("aria-current", String(session.id === here.id));
    row.onclick = () => { document.body.classList.remove("list"); location.hash = session.id; };
    const dot = document.createElement("i");
    dot.className = session.status;
    dot.title = DOTS[session.status] ?? "";
    const title = document.createElement("span");
    title.textContent = session.title || "Untitled";
    const time = document.createElement("time");
    time.textContent = age(session.updated_at);
    row.append(dot, title, time);
    const item = document.createElement("li");
    item.append(row);
    return item;
  }));
}

function age(at) {
  const minutes = Math.floor((Date.now() - at) / 60000);
  if (minutes < 1) return "now";
  if (minutes < 60) return `${minutes} min`;
  return minutes < 1440 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} d`;
}

// Sent until it is kept: the key makes a repeated send one message.
async function send() {
  const text = el.text.value.trim();
  if (!text) return;
  if (!here.id) {
    const session = await api("POST", "/api/sessions", {});
    history.replaceState(null, "", `#${session.id}`);
    await open(session.id);
  }
  const { id } = here;
  const key = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  el.text.value = "";
  for (;;) {
    try {
      await api("POST", `/api/sessions/${id}/turns`, { text, key });
      if (el.line.textContent.startsWith("Not saved")) say("");
      return;
    } catch (error) {
      if (error.status && error.status < 500) { el.text.value = text; throw error; }
      say("Not saved yet; trying again…");
      await wait(1000);
    }
  }
}

el.composer.onsubmit = attempt(send);
el.text.onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); el.composer.requestSubmit(); }
};
el.stop.onclick = attempt(() => api("POST", `/api/runs/${el.stop.value}/cancel`));
el.new.onclick = () => { document.body.classList.remove("list"); location.hash = ""; el.text.focus(); };
el.menu.onclick = () => document.body.classList.add("list");
el.earlier.onclick = attempt(async () => {
  const page = await api("GET", `/api/sessions/${here.id}/messages?before=${here.transcript.before}`);
  const height = el.scroll.scrollHeight;
  here.transcript.addPage({ ...page, head: 0 });
  paint();
  el.scroll.scrollTop += el.scroll.scrollHeight - height;
});
el.rename.onclick = attempt(async () => {
  const title = prompt("Title", el.title.textContent);
  if (title) await api("PATCH", `/api/sessions/${here.id}`, { title });
});
el.delete.onclick = attempt(async () => {
  if (confirm("Delete this conversation and everything in it?")) await api("DELETE", `/api/sessions/${here.id}`);
});
addEventListener("hashchange", () => open(location.hash.slice(1) || null));
el.leave.onclick = attempt(signOut);
setInterval(() => { if (!document.hidden && el["sign-in"].hidden) showList(); }, 5000);

attempt(async () => {
  const me = await comeIn();
  el.leave.hidden = !me.browser;
  const { models: [model] } = await api("GET", "/api/models");
  el.model.textContent = `${model.name}: ${model.why}`;
  await open(location.hash.slice(1) || null);
  el.text.focus();
})();
