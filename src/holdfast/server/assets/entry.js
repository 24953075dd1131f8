// One entry of the conversation as people see it. Text only ever becomes text: nothing here makes markup of it.

const MAY_HAVE_RUN = "This may have run: the server stopped during it.";
const NOTICES = {
  interrupted: "Stopped when the server stopped.",
  pending: "Looking for the rest…",
  recovered: "Saved text restored",
  final: "No further output found",
};
const OUTCOMES = { failed: "failed", denied: "not allowed", not_run: "not run", unknown: "may have run" };
const STATES = { intended: "not run yet", started: "running…", in_doubt: "may have run" };

function make(tag, className, ...inside) {
  const node = document.createElement(tag);
  node.className = className;
  node.append(...inside);
  return node;
}

function button(text, onclick) {
  const node = make("button", "", text);
  node.type = "button";
  node.onclick = onclick;
  return node;
}

const clock = (at) => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
const textOf = (entry) => entry.parts.filter((part) => part.type === "text").map((part) => part.text).join("\n");

// The element for `entries[place]`; `decide` makes what its buttons do.
export function draw(transcript, entries, place, decide) {
  const entry = entries[place];
  const node = make("article", `${entry.role}${entry.live ? "" : " gone"}`);
  node.id = entry.id;
  if (!entry.live) node.title = "No longer part of the conversation.";
  if (entry.role === "notice") drawNotice(node, transcript, entries, place, decide);
  else if (entry.role === "tool") drawTool(node, transcript, entry, decide);
  else drawMessage(node, entry);
  if (entries[place + 1]?.turn !== entry.turn) drawEnd(node, transcript, entry, decide);
  return node;
}

function drawMessage(node, entry) {
  if (entry.late) node.append(make("p", "note quiet", "Arrived after the answer had gone on without it; not part of the conversation."));
  for (const part of entry.parts) {
    if (part.type === "text") node.append(make("div", "said", part.text));
    if (part.type === "file") node.append(make("p", "note quiet", `File: ${part.name}`));
    if (part.type === "reasoning" && part.text) {
      node.append(folded(`${entry.id}.${entry.parts.indexOf(part)}`, "Thinking", make("div", "said", part.text)));
    }
  }
  if (entry.status === "streaming" && !entry.parts.length) node.append(make("div", "said", "…"));
  if (entry.status === "recovered") node.append(make("p", "note quiet", "Saved text restored"));
}

function drawTool(node, transcript, entry, decide) {
  const call = transcript.entries.get(entry.message_id)?.parts.find((part) => part.call_id === entry.id);
  const written = entry.arguments ?? call?.arguments ?? entry.written ?? "";
  const said = OUTCOMES[entry.outcome] ?? (entry.outcome ? "" : STATES[entry.state] ?? "");
  const asks = entry.approval === "requested" && entry.state === "intended";
  const line = `${entry.name} ${shortened(written)}${said && !asks ? ` · ${said}` : ""}`;
  const output = textOf(entry);
  node.append(folded(entry.id, line, make("pre", "", pretty(written)), output ? make("pre", "", output) : ""));
  if (!entry.outcome && entry.state === "started" && output) node.append(make("pre", "", output.trimEnd().split("\n").slice(-3).join("\n")));
  if (entry.arguments) node.append(make("p", "note quiet", "Changed before it was allowed."));
  const say = (decision, more) => decide.tool(entry.run_id, entry.id, decision, more);
  if (asks) {
    const command = make("pre", "", pretty(written));
    const choices = [
      button("Allow", say("approve")),
      button("In this conversation", say("approve", () => ({ scope: "session" }))),
      button("Always", say("approve", () => ({ scope: "always" }))),
      button("Change…", say("approve", () => changed(written))),
      button("Don't", say("deny")),
      button("Don't, because…", say("deny", () => asked("reason", "Why not? The model reads this."))),
    ];
    if (entry.reason) node.append(make("p", "note quiet", entry.reason));
    node.append(command, make("div", "ask", `May ${entry.name} run?`, ...choices));
  } else if (entry.state === "in_doubt") {
    const choices = [["Run again", "rerun"], ["It ran, continue", "mark_done"], ["Skip", "skip"]];
    node.append(make("div", "ask", MAY_HAVE_RUN, ...choices.map(([text, decision]) => button(text, say(decision)))));
  }
}

function drawNotice(node, transcript, entries, place, decide) {
  const entry = entries[place];
  const after = entries.slice(place + 1).find((other) => other.turn === entry.turn && other.role !== "notice");
  const run = transcript.runs.get(entry.run_id);
  const line = make("div", "note", NOTICES[entry.status] ?? "");
  if (after) line.textContent = [entry.status === "interrupted" ? "" : NOTICES[entry.status], `Continued after restart, ${clock(after.at)}`].filter(Boolean).join(" · ");
  else if (run?.status === "interrupted") line.append(button("Continue", decide.resume(entry.run_id)));
  node.append(line);
}

// What is to be said of the turn's work, below its last entry.
function drawEnd(node, transcript, entry, decide) {
  const run = transcript.runOfTurn(entry.turn);
  if (!run || !entry.live) return;
  const first = [...transcript.entries.values()].find((other) => other.turn === entry.turn && other.place === 0);
  if (run.status === "queued") {
    const others = [...transcript.runs.values()].some((other) => other.turn < run.turn && ["accepted", "running", "waiting", "queued"].includes(other.status));
    node.append(make("div", "note quiet", "Waits for the message before it.", others ? "" : button("Answer it now", decide.resume(run.id))));
  } else if (run.status === "failed") {
    const again = first?.turn_id ? button("Try again", decide.retry(first.turn_id)) : "";
    node.append(make("div", "note wrong", run.failure?.detail ?? "It failed.", again));
  } else if (run.status === "waiting" && run.waiting === "limit") {
    node.append(make("div", "note", `Paused at its limit: ${run.detail}.`, button("Continue", decide.resume(run.id))));
  } else if (run.status === "cancelled") {
    node.append(make("div", "note quiet", "Stopped."));
  } else if (run.status === "running" && run.retrying) {
    node.append(make("div", "note", `Trying again: ${run.retrying}`));
  } else if (["accepted", "running"].includes(run.status) && entry.role !== "assistant" && entry.status !== "streaming") {
    node.append(make("div", "note quiet", "Working…"));
  }
}

// A fold stays as the reader left it, however often it is drawn again.
function folded(id, line, ...inside) {
  const node = make("details", "", make("summary", "", line), ...inside);
  node.dataset.fold = id;
  node.open = document.querySelector(`details[data-fold="${CSS.escape(id)}"]`)?.open ?? false;
  return node;
}

function shortened(written) {
  const line = Object.values(parsed(written) ?? { written }).map(String).join(" ").replaceAll("\n", " ");
  return line.length > 80 ? `${line.slice(0, 79)}…` : line;
}

function asked(name, text, before = "") {
  const said = prompt(text, before);
  return said ? { [name]: said } : null;
}

// The command to run instead, or for another tool its arguments.
function changed(written) {
  const { command, ...rest } = parsed(written) ?? {};
  if (command === undefined) return asked("arguments", "Run it with this instead:", written);
  const said = asked("command", "Run this instead:", command);
  return said && { arguments: { ...rest, ...said } };
}

const pretty = (written) => {
  const found = parsed(written);
  return found ? Object.entries(found).map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("\n") : written;
};

function parsed(written) {
  try {
    const found = JSON.parse(written);
    return found && typeof found === "object" ? found : null;
  } catch { return null; }
}
