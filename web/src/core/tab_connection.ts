// A tab's access to the shared connection; without shared workers, a connection of its own.

import { StreamHub, browserEnvironment, type TabMessage, type PostToTab, type HubMessage } from "./hub";

export type PostToHub = (message: TabMessage) => void;

/** Open the connection; `receive` is called with every message. */
export function openTabConnection(base: string, receive: PostToTab): PostToHub {
  if (typeof SharedWorker === "undefined") return openLocalHub(base, receive);
  const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: base });
  worker.port.onmessage = ({ data }: MessageEvent<HubMessage>) => receive(data);
  worker.port.start();
  const lock = `tab-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  void navigator.locks?.request(lock, () => {
    worker.port.postMessage({ type: "alive", lock });
    return new Promise(() => undefined);
  });
  addEventListener("pagehide", (event) => {
    if (!(event as PageTransitionEvent).persisted) worker.port.postMessage({ type: "bye" } satisfies TabMessage);
  });
  return (message) => worker.port.postMessage(message);
}

function openLocalHub(base: string, receive: PostToTab): PostToHub {
  const hub = new StreamHub(base, browserEnvironment);
  setInterval(() => hub.checkAlive(), 5_000);
  addEventListener("online", () => hub.reconnect());
  hub.attach(receive);
  return (message) => hub.handle(receive, message);
}
