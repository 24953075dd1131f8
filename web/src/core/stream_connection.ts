// One connection for everything that is followed: conversations by their cursors, and the feed. It comes back by
// itself, with its cursors, however it was lost.

import { pageHeader } from "./api";
import type { AnyEvent } from "./protocol";
import { SseParser, type Frame } from "./sse";

export type Link = "connecting" | "connected" | "lost" | "signed_out";

export interface Told {
  events(session: string, events: AnyEvent[]): void;
  feed(name: string, content: unknown): void;
  link(state: Link): void;
  gone(session: string): void;
}

export interface World {
  fetch: typeof fetch;
  wait(ms: number): Promise<void>;
  random(): number;
  now(): number;
}

const SILENT_MS_MAX = 40_000;
const BACKOFF_MS = 250;
const BACKOFF_MS_MAX = 2_000;

export class Connection {
  private readonly cursors = new Map<string, number>();
  private aborting: AbortController | null = null;
  private tries = 0;
  private heardAt = 0;
  private running = false;
  private isLost = false;
  private nudged: (() => void) | null = null;

  /** What the page shows beside the browser's cookie. */
  pageKey = "";

  constructor(private readonly base: string, private readonly told: Told, private readonly world: World) {}

  /** Follow a conversation from `after` on; what was followed further already is told again. */
  follow(session: string, after: number): void {
    const cursor = this.cursors.get(session);
    if (cursor !== undefined && cursor <= after) return;
    this.cursors.set(session, after);
    this.reopen();
  }

  leave(session: string): void {
    if (this.cursors.delete(session)) this.reopen();
  }

  /** Try now: the machine is online again, someone signed in, or what is followed has changed. */
  reopen(): void {
    this.tries = 0;
    this.aborting?.abort();
    this.nudged?.();
    if (!this.running) void this.run();
  }

  /** The server was reached otherwise: wait no longer, and leave an attempt under way alone. */
  hurry(): void {
    this.tries = 0;
    this.nudged?.();
  }

  /** To be called now and then: a connection that has been silent for too long is dead. */
  look(): void {
    if (this.aborting && this.world.now() - this.heardAt > SILENT_MS_MAX) this.aborting.abort();
  }

  private async run(): Promise<void> {
    this.running = true;
    for (;;) {
      // Several conversations are often opened in one go: one connection for all of them.
      await this.world.wait(10);
      const aborting = (this.aborting = new AbortController());
      // What is lost stays lost until it is back: nothing blinks when an attempt fails.
      if (!this.isLost) this.told.link("connecting");
      const ended = await this.once(aborting).catch(() => "lost" as const);
      this.aborting = null;
      if (aborting.signal.aborted && this.tries === 0) continue;
      this.isLost = ended === "lost";
      this.told.link(ended);
      const pause = ended === "signed_out" ? 60_000 : Math.min(BACKOFF_MS * 2 ** this.tries, BACKOFF_MS_MAX);
      this.tries += 1;
      await Promise.race([this.world.wait(pause * (0.5 + this.world.random() / 2)), this.nudge()]);
    }
  }

  private nudge(): Promise<void> {
    return new Promise((resolve) => {
      this.nudged = resolve;
    });
  }

  private async once(aborting: AbortController): Promise<Link> {
    this.heardAt = this.world.now();
    const sessions = [...this.cursors].map(([id, seq]) => `&session=${id}:${seq}`).join("");
    const answer = await this.world.fetch(`${this.base}api/stream?feed=true${sessions}`, {
      signal: aborting.signal, credentials: "same-origin", headers: { accept: "text/event-stream", ...pageHeader(this.pageKey) },
    });
    if (answer.status === 401) return "signed_out";
    if (answer.status === 404) await this.findGone();
    if (!answer.ok || !answer.body) return "lost";
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new SseParser();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "lost";
      this.heardAt = this.world.now();
      this.isLost = false;
      this.told.link("connected");
      this.tries = 0;
      this.pass(parser.feed(value));
    }
  }

  /** Hand on what came, a run of events of one conversation at a time. */
  private pass(frames: Frame[]): void {
    let session = "";
    let events: AnyEvent[] = [];
    const flush = () => {
      if (events.length) this.told.events(session, events);
      events = [];
    };
    for (const frame of frames) {
      const content = JSON.parse(frame.data) as AnyEvent & { session_id: string };
      if (!frame.id) {
        flush();
        this.told.feed(frame.event, content);
        continue;
      }
      if (content.session_id !== session) flush();
      session = content.session_id;
      if (this.cursors.has(session)) this.cursors.set(session, content.seq);
      events.push(content);
    }
    flush();
  }

  private async findGone(): Promise<void> {
    for (const session of [...this.cursors.keys()]) {
      const answer = await this.world.fetch(`${this.base}api/sessions/${session}`, { credentials: "same-origin", headers: pageHeader(this.pageKey) });
      if (answer.status !== 404) continue;
      this.cursors.delete(session);
      this.told.gone(session);
    }
  }
}
