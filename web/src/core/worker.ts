// The shared worker: all tabs of this browser use one connection, since browsers allow six to one server.

import { Hub, realWorld, type FromTab, type Post } from "./hub";

const scope = self as unknown as SharedWorkerGlobalScope;
const base = new URL(self.name || "./", self.location.href).href;
const hub = new Hub(base, realWorld);
setInterval(() => hub.look(), 5_000);
self.addEventListener("online", () => hub.wake());

scope.onconnect = ({ ports: [port] }) => {
  if (!port) return;
  const post: Post = (message) => port.postMessage(message);
  port.onmessage = ({ data }: MessageEvent<FromTab | { type: "alive"; lock: string }>) => {
    if (data.type !== "alive") return hub.take(post, data);
    // A tab holds a lock as long as it lives; whoever gets it then knows that the tab has gone.
    void navigator.locks.request(data.lock, () => hub.detach(post));
  };
  hub.attach(post);
};
