// Shares one connection between all tabs. A tab that comes late is given the newest snapshot of the feed.

import { Connection, type Link, type World } from "./stream_connection";
import type { AnyEvent } from "./protocol";

export type FromTab =
  | { type: "follow"; session: string; after: number }
  | { type: "leave"; session: string }
  | { type: "retry"; pageKey: string }
  | { type: "reachable" }
  | { type: "bye" };

export type ToTab =
  | { type: "events"; session: string; events: AnyEvent[] }
  | { type: "feed"; name: string; content: unknown }
  | { type: "link"; state: Link }
  | { type: "gone"; session: string };

export type Post = (message: ToTab) => void;

export class Hub {
  private readonly tabs = new Map<Post, Set<string>>();
  private readonly connection: Connection;
  private link: Link = "connecting";

  constructor(base: string, world: World) {
    this.connection = new Connection(base, {
      events: (session, events) => this.tell(session, { type: "events", session, events }),
      feed: (name, content) => this.tellAll({ type: "feed", name, content }),
      gone: (session) => this.tell(session, { type: "gone", session }),
      link: (state) => {
        if (state === this.link) return;
        this.link = state;
        this.tellAll({ type: "link", state });
      },
    }, world);
  }

  /** A tab has opened. Its first `retry` tells everyone the feed anew: one connection, and no bookkeeping. */
  attach(post: Post): void {
    this.tabs.set(post, new Set());
    post({ type: "link", state: this.link });
  }

  detach(post: Post): void {
    const followed = this.tabs.get(post) ?? [];
    this.tabs.delete(post);
    for (const session of followed) this.leave(session);
  }

  take(post: Post, message: FromTab): void {
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
        return this.connection.hurry();
      case "bye":
        return this.detach(post);
    }
  }

  /** The machine is online again. */
  wake(): void {
    this.connection.reopen();
  }

  look(): void {
    this.connection.look();
  }

  private leave(session: string): void {
    for (const followed of this.tabs.values()) if (followed.has(session)) return;
    this.connection.leave(session);
  }

  private tell(session: string, message: ToTab): void {
    for (const [post, followed] of this.tabs) if (followed.has(session)) post(message);
  }

  private tellAll(message: ToTab): void {
    for (const post of this.tabs.keys()) post(message);
  }
}

export const realWorld: World = {
  fetch: (...given) => fetch(...given),
  wait: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
  random: Math.random,
  now: () => performance.now(),
};
