import { describe, expect, test } from "vitest";
import { ApiError } from "../src/core/api";
import { BlockSplitter } from "../src/core/markdown_blocks";
import { StreamConnection, type ConnectionStatus, type StreamEnvironment } from "../src/core/stream_connection";
import { Outbox, type OutgoingMessage, type DeliveryReceipt } from "../src/core/outbox";
import { SseParser } from "../src/core/sse";

describe("server-sent events", () => {
  const text = 'retry: 1000\n\nid: 1\nevent: a\ndata: {"x":1}\n\n: still here\n\nid: s:2\nevent: b\ndata: {"y":"é"}\n\n';

  test("are the same wherever the stream is cut", () => {
    const whole = new SseParser().feed(text);
    expect(whole.map((frame) => [frame.id, frame.event, frame.data])).toEqual([["1", "a", '{"x":1}'], ["s:2", "b", '{"y":"é"}']]);
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = new SseParser();
      expect([...parser.feed(text.slice(0, cut)), ...parser.feed(text.slice(cut))]).toEqual(whole);
    }
  });

  test("that are incomplete are not returned", () => {
    expect(new SseParser().feed("id: 1\nevent: a\ndata: {").length).toBe(0);
  });
});

describe("blocks", () => {
  const text = "# Title\n\nSome *words*\nmore\n\n- one\n\n- two\n\n```py\na\n\nb\n```\n\n| a |\n|---|\n| 1 |\n\nend";

  test("join to the whole text, and a closed one never changes", () => {
    const whole = new BlockSplitter();
    const last = whole.feed(text);
    expect([...whole.closed, last].join("")).toBe(text);
    expect(whole.closed).toContain("```py\na\n\nb\n```\n\n");
    expect(whole.closed).toContain("- one\n\n- two\n\n");
    const slow = new BlockSplitter();
    for (let end = 1; end <= text.length; end++) {
      const before = [...slow.closed];
      slow.feed(text.slice(0, end));
      expect(slow.closed.slice(0, before.length)).toEqual(before);
    }
    expect(slow.closed).toEqual(whole.closed);
  });
});

function outgoing(key: string, session: string | null = "s_1"): OutgoingMessage {
  return { key, session, text: key, attachments: [], if_busy: "queue", at: 0 };
}

function outbox(answers: (ApiError | null)[], isShown = (_: DeliveryReceipt) => true) {
  const sent: string[] = [];
  const views: string[][] = [];
  let stored: string | null = null;
  const storage = { read: () => stored, write: (text: string) => { stored = text; } };
  const box = new Outbox(storage, {
    createSession: async () => "s_new",
    send: async (session, { key }) => {
      const error = answers.shift() ?? null;
      if (error) throw error;
      sent.push(`${session}:${key}`);
      return { session, seq: sent.length };
    },
  }, (all) => views.push(all.map(({ key, seq }) => (seq ? `${key} saved` : key))), isShown);
  return { box, sent, views };
}

describe("the outbox", () => {
  const offline = new ApiError({ status: 0, code: "unreachable", detail: "away" });
  const no = new ApiError({ status: 413, code: "too_large", detail: "too long" });

  test("keeps messages while offline and sends them in order later", async () => {
    const { box, sent } = outbox([offline]);
    box.add(outgoing("a"));
    box.add(outgoing("b"));
    expect(await box.flush()).toBe(false);
    expect(box.messages().length).toBe(2);
    expect(await box.flush()).toBe(true);
    expect(sent).toEqual(["s_1:a", "s_1:b"]);
    expect(box.messages()).toEqual([]);
  });

  test("holds back the messages after a refused one, in that session alone", async () => {
    const { box, sent } = outbox([no]);
    box.add(outgoing("a"));
    box.add(outgoing("b"));
    box.add(outgoing("c", "s_2"));
    expect(await box.flush()).toBe(true);
    expect(sent).toEqual(["s_2:c"]);
    expect(box.messages().map((each) => [each.key, each.refused])).toEqual([["a", "too long"], ["b", undefined]]);
  });

  test("creates a session once for a message that has none, however often it is sent", async () => {
    const { box, sent } = outbox([offline, null]);
    box.add(outgoing("a", null));
    await box.flush();
    expect(box.messages()[0]?.session).toBe("s_new");
    await box.flush();
    expect(sent).toEqual(["s_new:a"]);
  });

  test("shows a saved message until the conversation does", async () => {
    let head = 0;
    const { box, views } = outbox([], ({ seq }) => seq <= head);
    box.add(outgoing("a"));
    box.add(outgoing("b"));
    await box.flush();
    expect(views).toEqual([["a"], ["a", "b"], ["a saved", "b"], ["a saved", "b saved"]]);
    expect(box.messages()).toEqual([]);
    box.confirm(["a"]);
    expect(views.at(-1)).toEqual(["b saved"]);
    head = 2;
    box.confirm();
    expect(views.at(-1)).toEqual([]);
  });

  test("removes a message whose turn comes before the server's response", async () => {
    const { box, views } = outbox([], () => false);
    box.add(outgoing("a"));
    const flushing = box.flush();
    box.confirm(["a"]);
    await flushing;
    expect(views).toEqual([["a"], [], []]);
  });
});

/** A server whose streams the test writes. */
class Streams {
  readonly urls: string[] = [];
  private writers: ReadableStreamDefaultController<Uint8Array>[] = [];
  status = 200;

  environment: StreamEnvironment = {
    fetch: async (url, init) => {
      this.urls.push(String(url));
      if (this.status !== 200) return new Response("{}", { status: this.status });
      const body = new ReadableStream<Uint8Array>({ start: (writer) => void this.writers.push(writer) });
      init?.signal?.addEventListener("abort", () => { try { this.writers.at(-1)?.error(new Error("aborted")); } catch { /* ended */ } });
      return new Response(body);
    },
    wait: (ms) => new Promise((resolve) => setTimeout(resolve, Math.min(ms, 5))),
    random: () => 0.5,
    now: () => 0,
  };

  send(id: string, event: string, content: object): void {
    const line = `${id ? `id: ${id}\n` : ""}event: ${event}\ndata: ${JSON.stringify(content)}\n\n`;
    this.writers.at(-1)?.enqueue(new TextEncoder().encode(line));
  }

  cut(): void {
    this.writers.at(-1)?.close();
  }
}

async function until(isSo: () => boolean): Promise<void> {
  for (let tries = 0; tries < 400; tries++) {
    if (isSo()) return;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  throw new Error("the condition did not become true");
}

describe("the connection", () => {
  function connected() {
    const server = new Streams();
    const received: string[] = [];
    const statuses: ConnectionStatus[] = [];
    const connection = new StreamConnection("http://x/", {
      onEvents: (session, events) => received.push(...events.map((event) => `${session}:${event.seq}`)),
      onFeed: (name) => received.push(name),
      onGone: (session) => received.push(`gone ${session}`),
      onStatus: (state) => { if (statuses.at(-1) !== state) statuses.push(state); },
    }, server.environment);
    return { server, received, statuses, connection };
  }

  test("resumes from its cursors after it was cut", async () => {
    const { server, received, statuses, connection } = connected();
    connection.follow("s_1", 3);
    connection.follow("s_2", 0);
    await until(() => server.urls.length === 1);
    expect(server.urls[0]).toBe("http://x/api/stream?feed=true&session=s_1:3&session=s_2:0");
    server.send("s_1:4", "text_appended", { session_id: "s_1", seq: 4, kind: "text_appended" });
    server.send("", "feed_snapshot", {});
    await until(() => received.length === 2);
    server.cut();
    await until(() => server.urls.length === 2);
    expect(server.urls[1]).toContain("session=s_1:4&session=s_2:0");
    expect(received).toEqual(["s_1:4", "feed_snapshot"]);
    expect(statuses.slice(0, 3)).toEqual(["connecting", "connected", "lost"]);
  });

  test("stays lost until it is back, and retries at once when another request reached the server", async () => {
    const { server, statuses, connection } = connected();
    const pauses: number[] = [];
    server.environment.wait = (ms) => (ms === 10 ? Promise.resolve() : new Promise(() => void pauses.push(ms)));
    server.status = 502;
    connection.follow("s_1", 0);
    for (const tries of [1, 2, 3]) {
      await until(() => pauses.length === tries);
      connection.retryNow();
    }
    await until(() => pauses.length === 4);
    expect(statuses).toEqual(["connecting", "lost"]);
    server.status = 200;
    connection.retryNow();
    await until(() => server.urls.length === 5);
    server.send("", "feed_snapshot", {});
    await until(() => statuses.length === 3);
    expect(statuses).toEqual(["connecting", "lost", "connected"]);
  });

  test("reports that the user has to sign in, and reconnects on request", async () => {
    const { server, statuses, connection } = connected();
    server.status = 401;
    connection.follow("s_1", 0);
    await until(() => statuses.includes("signed_out"));
    server.status = 200;
    connection.reopen();
    await until(() => server.urls.length >= 2);
  });

  test("stops following a deleted session, and keeps the others", async () => {
    const { server, received, connection } = connected();
    server.status = 404;
    connection.follow("s_1", 0);
    await until(() => received.includes("gone s_1"));
    server.status = 200;
    await until(() => server.urls.at(-1) === "http://x/api/stream?feed=true");
  });
});
