// Share one connection between all tabs. A tab that opens later receives the newest snapshot of the feed.

import { StreamConnection, type ConnectionStatus, type StreamEnvironment } from "./stream_connection";
import type { AnyEvent } from "./protocol";

export type TabMessage =
  | { type: "follow"; session: string; after: number }
  | { type: "leave"; session: string }
  | { type: "retry"; pageKey: string }
  | { type: "reachable" }
  | { type: "bye" };

export type HubMessage =
  | { type: "events"; session: string; events: AnyEvent[] }
  | { type: "feed"; name: string; content: unknown }
  | { type: "link"; state: ConnectionStatus }
  | { type: "gone"; session: string };

export type PostToTab = (message: HubMessage) => void;

export class StreamHub {
  private readonly tabs = new Map<PostToTab, Set<string>>();
  private readonly connection: StreamConnection;
  private status: ConnectionStatus = "connecting";

  constructor(base: string, environment: StreamEnvironment) {
    this.connection = new StreamConnection(base, {
      onEvents: (session, events) => this.post(session, { type: "events", session, events }),
      onFeed: (name, content) => this.broadcast({ type: "feed", name, content }),
      onGone: (session) => this.post(session, { type: "gone", session }),
      onStatus: (state) => {
        if (state === this.status) return;
        this.status = state;
        this.broadcast({ type: "link", state });
      },
    }, environment);
  }

  /** Add a tab. Its first `retry` reopens the connection, so every tab receives the feed again and none needs bookkeeping. */
  attach(post: PostToTab): void {
    this.tabs.set(post, new Set());
    post({ type: "link", state: this.status });
  }

  detach(post: PostToTab): void {
    const followed = this.tabs.get(post) ?? [];
    this.tabs.delete(post);
    for (const session of followed) this.leave(session);
  }

  handle(post: PostToTab, message: TabMessage): void {
    switch (message.type) {
      case "follow":
        this.tabs.get(post)?.add(message.session);
        return this.connection.follow(message.session, message.after);
      case "leave":
        this.tabs.get(post)?.delete(message.session);
        return this.leave(message.session);
      case "retry":
        this.connection.pageKey = message.pageKey;
        return this.connection.reopen();
      case "reachable":
        return this.connection.retryNow();
      case "bye":
        return this.detach(post);
    }
  }

  /** Reconnect: the machine is online again. */
  reconnect(): void {
    this.connection.reopen();
  }

  checkAlive(): void {
    this.connection.checkAlive();
  }

  private leave(session: string): void {
    for (const followed of this.tabs.values()) if (followed.has(session)) return;
    this.connection.leave(session);
  }

  private post(session: string, message: HubMessage): void {
    for (const [post, followed] of this.tabs) if (followed.has(session)) post(message);
  }

  private broadcast(message: HubMessage): void {
    for (const post of this.tabs.keys()) post(message);
  }
}

export const browserEnvironment: StreamEnvironment = {
  fetch: (...args) => fetch(...args),
  wait: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  random: Math.random,
  now: () => performance.now(),
};
