// A tab's end of the shared connection; where there are no shared workers, a connection of its own.

import { Hub, realWorld, type FromTab, type Post, type ToTab } from "./hub";

export type Line = (message: FromTab) => void;

/** Open the line; `take` is called with everything that comes over it. */
export function openLine(base: string, take: Post): Line {
  if (typeof SharedWorker === "undefined") return ownLine(base, take);
  const worker = new SharedWorker(new URL("./worker.ts", import.meta.url), { type: "module", name: base });
  worker.port.onmessage = ({ data }: MessageEvent<ToTab>) => take(data);
  worker.port.start();
  const lock = `tab-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
  void navigator.locks?.request(lock, () => {
    worker.port.postMessage({ type: "alive", lock });
    return new Promise(() => undefined);
  });
  addEventListener("pagehide", (event) => {
    if (!(event as PageTransitionEvent).persisted) worker.port.postMessage({ type: "bye" } satisfies FromTab);
  });
  return (message) => worker.port.postMessage(message);
}

function ownLine(base: string, take: Post): Line {
  const hub = new Hub(base, realWorld);
  setInterval(() => hub.look(), 5_000);
  addEventListener("online", () => hub.wake());
  hub.attach(take);
  return (message) => hub.take(take, message);
}
