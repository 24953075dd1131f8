import { describe, expect, test } from "vitest";
import { Refused } from "../src/core/api";
import { BlockSplitter } from "../src/core/markdown_blocks";
import { Connection, type Link, type World } from "../src/core/stream_connection";
import { Outbox, type Letter, type Receipt } from "../src/core/outbox";
import { SseParser } from "../src/core/sse";

describe("server-sent events", () => {
  const text = 'retry: 1000\n\nid: 1\nevent: a\ndata: {"x":1}\n\n: still here\n\nid: s:2\nevent: b\ndata: {"y":"é"}\n\n';

  test("come out the same wherever the stream is cut", () => {
    const whole = new SseParser().feed(text);
    expect(whole.map((frame) => [frame.id, frame.event, frame.data])).toEqual([["1", "a", '{"x":1}'], ["s:2", "b", '{"y":"é"}']]);
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = new SseParser();
      expect([...parser.feed(text.slice(0, cut)), ...parser.feed(text.slice(cut))]).toEqual(whole);
    }
  });

  test("that are cut off are not passed on half", () => {
    expect(new SseParser().feed("id: 1\nevent: a\ndata: {").length).toBe(0);
  });
});

describe("blocks", () => {
  const text = "# Title\n\nSome *words*\nmore\n\n- one\n\n- two\n\n```py\na\n\nb\n```\n\n| a |\n|---|\n| 1 |\n\nend";

  test("add up to the text, and a closed one never changes", () => {
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

function letter(key: string, session: string | null = "s_1"): Letter {
  return { key, session, text: key, attachments: [], if_busy: "queue", at: 0 };
}

function outbox(answers: (Refused | null)[], isShown = (_: Receipt) => true) {
  const sent: string[] = [];
  const views: string[][] = [];
  let stored: string | null = null;
  const drawer = { read: () => stored, write: (text: string) => { stored = text; } };
  const box = new Outbox(drawer, {
    begin: async () => "s_new",
    send: async (session, { key }) => {
      const refusal = answers.shift() ?? null;
      if (refusal) throw refusal;
      sent.push(`${session}:${key}`);
      return { session, seq: sent.length };
    },
  }, (all) => views.push(all.map(({ key, seq }) => (seq ? `${key} saved` : key))), isShown);
  return { box, sent, views };
}

describe("the outbox", () => {
  const away = new Refused({ status: 0, code: "unreachable", detail: "away" });
  const no = new Refused({ status: 413, code: "too_large", detail: "too long" });

  test("keeps what cannot be sent and sends it in order when it can", async () => {
    const { box, sent } = outbox([away]);
    box.add(letter("a"));
    box.add(letter("b"));
    expect(await box.flush()).toBe(false);
    expect(box.letters().length).toBe(2);
    expect(await box.flush()).toBe(true);
    expect(sent).toEqual(["s_1:a", "s_1:b"]);
    expect(box.letters()).toEqual([]);
  });

  test("holds back what follows a letter that was refused, in that conversation alone", async () => {
    const { box, sent } = outbox([no]);
    box.add(letter("a"));
    box.add(letter("b"));
    box.add(letter("c", "s_2"));
    expect(await box.flush()).toBe(true);
    expect(sent).toEqual(["s_2:c"]);
    expect(box.letters().map((each) => [each.key, each.refused])).toEqual([["a", "too long"], ["b", undefined]]);
  });

  test("begins a conversation once for a letter that has none, however often it is tried", async () => {
    const { box, sent } = outbox([away, null]);
    box.add(letter("a", null));
    await box.flush();
    expect(box.letters()[0]?.session).toBe("s_new");
    await box.flush();
    expect(sent).toEqual(["s_new:a"]);
  });

  test("shows a saved letter until the conversation does", async () => {
    let head = 0;
    const { box, views } = outbox([], ({ seq }) => seq <= head);
    box.add(letter("a"));
    box.add(letter("b"));
    await box.flush();
    expect(views).toEqual([["a"], ["a", "b"], ["a saved", "b"], ["a saved", "b saved"]]);
    expect(box.letters()).toEqual([]);
    box.arrived(["a"]);
    expect(views.at(-1)).toEqual(["b saved"]);
    head = 2;
    box.arrived();
    expect(views.at(-1)).toEqual([]);
  });

  test("drops a letter whose turn comes before the server's answer to it, and shows it no more", async () => {
    const { box, views } = outbox([], () => false);
    box.add(letter("a"));
    const flushing = box.flush();
    box.arrived(["a"]);
    await flushing;
    expect(views).toEqual([["a"], [], []]);
  });
});

/** A server whose streams a test writes by hand. */
class Streams {
  readonly asked: string[] = [];
  private writers: ReadableStreamDefaultController<Uint8Array>[] = [];
  status = 200;

  world: World = {
    fetch: async (url, init) => {
      this.asked.push(String(url));
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
  throw new Error("it did not come about");
}

describe("the connection", () => {
  function connected() {
    const server = new Streams();
    const heard: string[] = [];
    const links: Link[] = [];
    const connection = new Connection("http://x/", {
      events: (session, events) => heard.push(...events.map((event) => `${session}:${event.seq}`)),
      feed: (name) => heard.push(name),
      gone: (session) => heard.push(`gone ${session}`),
      link: (state) => { if (links.at(-1) !== state) links.push(state); },
    }, server.world);
    return { server, heard, links, connection };
  }

  test("comes back with its cursors after it was cut", async () => {
    const { server, heard, links, connection } = connected();
    connection.follow("s_1", 3);
    connection.follow("s_2", 0);
    await until(() => server.asked.length === 1);
    expect(server.asked[0]).toBe("http://x/api/stream?feed=true&session=s_1:3&session=s_2:0");
    server.send("s_1:4", "text_appended", { session_id: "s_1", seq: 4, kind: "text_appended" });
    server.send("", "feed_snapshot", {});
    await until(() => heard.length === 2);
    server.cut();
    await until(() => server.asked.length === 2);
    expect(server.asked[1]).toContain("session=s_1:4&session=s_2:0");
    expect(heard).toEqual(["s_1:4", "feed_snapshot"]);
    expect(links.slice(0, 3)).toEqual(["connecting", "connected", "lost"]);
  });

  test("stays lost until it is back, and tries again at once when the server was reached otherwise", async () => {
    const { server, links, connection } = connected();
    const pauses: number[] = [];
    server.world.wait = (ms) => (ms === 10 ? Promise.resolve() : new Promise(() => void pauses.push(ms)));
    server.status = 502;
    connection.follow("s_1", 0);
    for (const tries of [1, 2, 3]) {
      await until(() => pauses.length === tries);
      connection.hurry();
    }
    await until(() => pauses.length === 4);
    expect(links).toEqual(["connecting", "lost"]);
    server.status = 200;
    connection.hurry();
    await until(() => server.asked.length === 5);
    server.send("", "feed_snapshot", {});
    await until(() => links.length === 3);
    expect(links).toEqual(["connecting", "lost", "connected"]);
  });

  test("says that one has to sign in, and tries again once told to", async () => {
    const { server, links, connection } = connected();
    server.status = 401;
    connection.follow("s_1", 0);
    await until(() => links.includes("signed_out"));
    server.status = 200;
    connection.reopen();
    await until(() => server.asked.length >= 2);
  });

  test("leaves a conversation that is no more, and keeps the others", async () => {
    const { server, heard, connection } = connected();
    server.status = 404;
    connection.follow("s_1", 0);
    await until(() => heard.includes("gone s_1"));
    server.status = 200;
    await until(() => server.asked.at(-1) === "http://x/api/stream?feed=true");
  });
});
