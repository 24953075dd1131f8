// The shared worker: all tabs of a browser use one connection, because browsers allow six to one server.

import { StreamHub, browserEnvironment, type TabMessage, type PostToTab } from "./hub";

const scope = self as unknown as SharedWorkerGlobalScope;
const base = new URL(self.name || "./", self.location.href).href;
const hub = new StreamHub(base, browserEnvironment);
setInterval(() => hub.checkAlive(), 5_000);
self.addEventListener("online", () => hub.reconnect());

scope.onconnect = ({ ports: [port] }) => {
  if (!port) return;
  const post: PostToTab = (message) => port.postMessage(message);
  port.onmessage = ({ data }: MessageEvent<TabMessage | { type: "alive"; lock: string }>) => {
    if (data.type !== "alive") return hub.handle(post, data);
    // A tab holds a lock while it is open. When the worker gets the lock, the tab is closed.
    void navigator.locks.request(data.lock, () => hub.detach(post));
  };
  hub.attach(post);
};
