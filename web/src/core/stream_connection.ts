// One connection for all followed sessions, each by its cursor, and the feed. It reconnects by itself and resumes
// from its cursors.

import { pageKeyHeader } from "./api";
import type { AnyEvent } from "./protocol";
import { SseParser, type Frame } from "./sse";

export type ConnectionStatus = "connecting" | "connected" | "lost" | "signed_out";

export interface StreamListener {
  onEvents(session: string, events: AnyEvent[]): void;
  onFeed(name: string, content: unknown): void;
  onStatus(state: ConnectionStatus): void;
  onGone(session: string): void;
}

export interface StreamEnvironment {
  fetch: typeof fetch;
  wait(ms: number): Promise<void>;
  random(): number;
  now(): number;
}

const SILENCE_MS_MAX = 40_000;
const BACKOFF_MS = 250;
const BACKOFF_MS_MAX = 2_000;

export class StreamConnection {
  private readonly cursors = new Map<string, number>();
  private abortController: AbortController | null = null;
  private attempts = 0;
  private lastReceivedAt = 0;
  private running = false;
  private isLost = false;
  private wake: (() => void) | null = null;

  /** The key that the page sends in addition to the browser's cookie. */
  pageKey = "";

  constructor(private readonly base: string, private readonly listener: StreamListener, private readonly environment: StreamEnvironment) {}

  /** Follow a session from `after` on. Events after an earlier cursor are sent again. */
  follow(session: string, after: number): void {
    const cursor = this.cursors.get(session);
    if (cursor !== undefined && cursor <= after) return;
    this.cursors.set(session, after);
    this.reopen();
  }

  leave(session: string): void {
    if (this.cursors.delete(session)) this.reopen();
  }

  /** Reconnect now: the machine is online, the user signed in, or the followed sessions have changed. */
  reopen(): void {
    this.attempts = 0;
    this.abortController?.abort();
    this.wake?.();
    if (!this.running) void this.run();
  }

  /** Retry now: another request reached the server. An attempt that is already running continues. */
  retryNow(): void {
    this.attempts = 0;
    this.wake?.();
  }

  /** Close a connection that has been silent for too long. Call it regularly. */
  checkAlive(): void {
    if (this.abortController && this.environment.now() - this.lastReceivedAt > SILENCE_MS_MAX) this.abortController.abort();
  }

  private async run(): Promise<void> {
    this.running = true;
    for (;;) {
      // Several sessions are often followed at once: open one connection for all of them.
      await this.environment.wait(10);
      const controller = (this.abortController = new AbortController());
      // Keep the status "lost" until the connection is back, so that the page does not flicker with each attempt.
      if (!this.isLost) this.listener.onStatus("connecting");
      const status = await this.readStream(controller).catch(() => "lost" as const);
      this.abortController = null;
      if (controller.signal.aborted && this.attempts === 0) continue;
      this.isLost = status === "lost";
      this.listener.onStatus(status);
      const pause = status === "signed_out" ? 60_000 : Math.min(BACKOFF_MS * 2 ** this.attempts, BACKOFF_MS_MAX);
      this.attempts += 1;
      await Promise.race([this.environment.wait(pause * (0.5 + this.environment.random() / 2)), this.waitForWake()]);
    }
  }

  private waitForWake(): Promise<void> {
    return new Promise((resolve) => {
      this.wake = resolve;
    });
  }

  private async readStream(controller: AbortController): Promise<ConnectionStatus> {
    this.lastReceivedAt = this.environment.now();
    const sessions = [...this.cursors].map(([id, seq]) => `&session=${id}:${seq}`).join("");
    const response = await this.environment.fetch(`${this.base}api/stream?feed=true${sessions}`, {
      signal: controller.signal, credentials: "same-origin", headers: { accept: "text/event-stream", ...pageKeyHeader(this.pageKey) },
    });
    if (response.status === 401) return "signed_out";
    if (response.status === 404) await this.removeDeleted();
    if (!response.ok || !response.body) return "lost";
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new SseParser();
    for (;;) {
      const { done: isDone, value } = await reader.read();
      if (isDone) return "lost";
      this.lastReceivedAt = this.environment.now();
      this.isLost = false;
      this.listener.onStatus("connected");
      this.attempts = 0;
      this.dispatch(parser.feed(value));
    }
  }

  /** Pass the frames to the listener, consecutive events of one session together. */
  private dispatch(frames: Frame[]): void {
    let session = "";
    let events: AnyEvent[] = [];
    const flush = () => {
      if (events.length) this.listener.onEvents(session, events);
      events = [];
    };
    for (const frame of frames) {
      const content = JSON.parse(frame.data) as AnyEvent & { session_id: string };
      if (!frame.id) {
        flush();
        this.listener.onFeed(frame.event, content);
        continue;
      }
      if (content.session_id !== session) flush();
      session = content.session_id;
      if (this.cursors.has(session)) this.cursors.set(session, content.seq);
      events.push(content);
    }
    flush();
  }

  private async removeDeleted(): Promise<void> {
    for (const session of [...this.cursors.keys()]) {
      const response = await this.environment.fetch(`${this.base}api/sessions/${session}`, { credentials: "same-origin", headers: pageKeyHeader(this.pageKey) });
      if (response.status !== 404) continue;
      this.cursors.delete(session);
      this.listener.onGone(session);
    }
  }
}
