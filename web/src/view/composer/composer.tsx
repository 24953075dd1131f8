// Where one writes: several lines, files, commands that begin with a slash, and what to do while an answer is
// being written. What is typed is kept for each conversation.

import { computed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../../core/transcript_types";
import type { IfBusy } from "../../core/outbox";
import { actions, slash } from "../app/actions";
import { asksForWords } from "../approvals/approval";
import { attaching, Choose, Dropping, Files, SendsSoon } from "./uploads";
import { Chooser } from "./agent_model_button";
import { called, Commands, completions, isPrompt } from "./slash_commands";
import { prompts } from "./agent_model";
import { text, useDraft } from "./draft";
import { begunHere, send } from "../app/session_sync";
import { Spent } from "./usage_meter";
import { current, link, notice, open, place, say, tick } from "../app/store";
import { s } from "../text/index";

function isAnyOf(...statuses: string[]): boolean {
  void tick.value;
  return [...open.conversation.work.values()].some((work) => statuses.includes(work.status));
}

// What is typed in is drawn again when these change, not with every word of an answer.
const busyNow = computed(() => isAnyOf("accepted", "running"));
const waitsNow = computed(() => isAnyOf("waiting"));
const asksNow = computed(() => (void tick.value, [...open.conversation.work.values()].some((work) => work.waiting === "question")));

function earlierMessages(): string[] {
  const turns = open.conversation.ordered().filter((turn) => turn.live);
  return turns.map((turn) => turn.entries.find((entry) => entry.role === "user")).flatMap((entry) => (entry ? [entry.parts.map((part) => (part.type === "text" ? part.text : "")).join("")] : []));
}

export function Composer() {
  const back = useSignal(0);
  const marked = useSignal(-1);
  const looking = useRef(false);
  /** The prompt that is being looked for, and what stands here to be sent once it is found. */
  const sought = useSignal<readonly [name: string, sent: string] | null>(null);
  /** The files that were not taken, and that whoever writes was told of. */
  const without = useRef("");
  const area = useRef<HTMLTextAreaElement>(null);
  const id = current.value;
  const goesOn = useGoingOn(id);
  useDraft(id, goesOn);

  useEffect(() => {
    area.current?.focus();
    back.value = 0;
  }, [id]);
  useLayoutEffect(() => {
    if (goesOn) attaching.goOn();
    attaching.leave(id);
  }, [id]);
  useLayoutEffect(() => () => attaching.leave(null), []);
  useEffect(() => {
    const node = area.current;
    if (!node) return;
    node.style.height = "auto";
    // What it holds, and its own edges: without them it would scroll by their width.
    node.style.height = `${Math.min(node.scrollHeight + node.offsetHeight - node.clientHeight, innerHeight * 0.4)}px`;
  }, [text.value, id]);

  // An answer has no files: with some, it is a message.
  const hasFiles = attaching.given.value.some((each) => !each.wrong);
  const answering = hasFiles ? null : asksForWords.value;
  const compose = answering ? s.answerHere : s.compose;
  const submit = (if_busy: IfBusy) => {
    const words = text.value.trim();
    if (attaching.holds() || (!words && !hasFiles) || lacks()) return;
    if (attaching.isUnderWay()) return attaching.sendSoon(if_busy);
    const command = called(words);
    if (answering && !(command && slash[command.name])) return void answer(answering, words);
    if (command && !prompts.value.some((each) => each.name === command.name)) {
      const run = slash[command.name];
      if (!run) return void perhaps(command.name, words, if_busy);
      run(command.rest);
      // A command takes no files: they wait for the message.
      return unwrite();
    }
    if (notice.value?.text === s.undone) notice.value = null; // Undo would remove what is sent now.
    void send(words, if_busy, attaching.stored());
    empty();
  };

  // Words that nobody has written just now, such as a draft that comes late, are not sent by themselves.
  useLayoutEffect(() => attaching.leave(null), [text.value]);
  const soon = attaching.sends();
  useEffect(() => {
    const how = attaching.sends();
    if (!how || attaching.isUnderWay()) return;
    attaching.dontSend();
    submit(how);
  });

  /** What is written stays where it is when it did not get there. */
  const answer = async ({ run_id, id: call }: Entry, words: string) => {
    if (looking.current) return;
    looking.current = true;
    const [sent] = standing();
    const isThere = await actions.answer(run_id ?? "", call, { decision: "answer", text: words });
    looking.current = false;
    if (isThere && standing()[0] === sent) unwrite();
  };

  const unwrite = () => {
    text.value = "";
    back.value = 0;
    marked.value = -1;
  };

  const empty = () => {
    unwrite();
    attaching.clear();
  };

  /** Whoever writes on has not said all yet. At once: the next key may be the one that sends. */
  const write = (words: string) => {
    attaching.dontSend();
    text.value = words;
  };

  /** Whether a file was not taken whose writer may not have seen that: they are told, and send again without it. */
  const lacks = (): boolean => {
    const wrong = attaching.given.value.filter((each) => each.wrong);
    const keys = wrong.map((each) => each.key).join();
    if (keys === without.current) return false;
    without.current = keys;
    if (wrong.length) say(s.notTaken(wrong.map((each) => each.name)));
    return wrong.length > 0;
  };

  /** Send what may call a prompt that this page has not heard of. */
  const perhaps = async (name: string, words: string, if_busy: IfBusy) => {
    if (looking.current) return;
    looking.current = true;
    const sent = standing().join();
    sought.value = [name, sent];
    const found = await isPrompt(name);
    looking.current = false;
    sought.value = null;
    if (standing().join() !== sent) return say(s.notSentChanged);
    if (!found) return say(found === null ? s.cannotLookUp(name) : s.unknownCommand(name));
    if (notice.value?.text === s.undone) notice.value = null; // Undo would remove what is sent now.
    void send(words, if_busy, attaching.stored());
    empty();
  };

  const complete = (name: string) => {
    write(`/${name} `);
    marked.value = -1;
    area.current?.focus();
  };

  /** Keys that choose among what can follow a slash; whether it was one of them. */
  const pick = (event: KeyboardEvent): boolean => {
    const found = back.value ? [] : completions(text.value);
    if (!found.length) return false;
    const name = found[marked.value]?.name;
    if (event.key === "ArrowDown") marked.value = (marked.value + 1) % found.length;
    else if (event.key === "ArrowUp") marked.value = marked.value > 0 ? marked.value - 1 : found.length - 1;
    else if (event.key === "Enter" && name) complete(name);
    else if (event.key === "Tab" && !event.shiftKey && found[0]) complete(name ?? found[0].name);
    else return false;
    return true;
  };

  const press = (event: KeyboardEvent) => {
    if (pick(event)) return event.preventDefault();
    if (event.key === "Escape" && soon) {
      attaching.dontSend();
      return event.stopPropagation();
    }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      return submit(event.altKey ? "steer" : "queue");
    }
    const history = earlierMessages();
    if (event.key === "ArrowUp" && (text.value === "" || back.value > 0) && back.value < history.length) {
      event.preventDefault();
      back.value += 1;
      write(history.at(-back.value) ?? "");
    } else if (event.key === "ArrowDown" && back.value > 0) {
      event.preventDefault();
      back.value -= 1;
      write(back.value ? (history.at(-back.value) ?? "") : "");
    }
  };

  const busy = busyNow.value;
  const hasMessage = text.value.trim() !== "" || hasFiles;
  const waits = waitsNow.value;
  const looksFor = sought.value?.[1] === standing().join() ? sought.value[0] : "";
  const isHeld = attaching.holds() || soon !== null || looksFor !== "";
  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), submit("queue"))}>
      <Commands text={text.value} at={marked.value} choose={complete} />
      <Dropping />
      <Files send={() => submit("queue")} />
      <textarea ref={area} rows={1} placeholder={compose} aria-label={compose} value={text.value}
        aria-activedescendant={marked.value >= 0 ? `command-${marked.value}` : undefined}
        onInput={(event) => { write(event.currentTarget.value); marked.value = -1; }} onKeyDown={press}
        onPaste={(event) => { const given = [...(event.clipboardData?.files ?? [])]; if (given.length) { event.preventDefault(); attaching.add(given); } }} />
      {waits && hasMessage && <p class="note" role="status">{answering ? s.answersAbove : asksNow.value ? s.leavesUnanswered : s.refusesFirst}</p>}
      {looksFor && <p class="note quiet" role="status">{s.looksUp(looksFor)}</p>}
      <SendsSoon />
      <p class="buttons">
        <Choose />
        <Chooser />
        <Spent />
        <span class="spread" />
        {busy && hasMessage && <button type="button" class="quiet" disabled={isHeld} onClick={() => submit("steer")}>{s.tellNow}</button>}
        {busy && hasMessage && <button type="button" class="quiet" disabled={isHeld} onClick={() => submit("interrupt")}>{s.stopAndSend}</button>}
        {(busy || waits) && <button type="button" class="stop" disabled={link.value === "lost"} onClick={() => void actions.stop()}>{s.stop}</button>}
        {(!busy || hasMessage) && <button type="submit" class="strong" disabled={isHeld}>{answering ? s.answerIt : busy ? s.sendAfter : s.send}</button>}
      </p>
    </form>
  );
}

/** What stands here to be sent, to be compared once something was waited for: where it is with its words, and its files. */
function standing(): [words: string, files: string] {
  return [JSON.stringify([place.value, current.value, text.value]), JSON.stringify(attaching.given.value)];
}

/** Whoever writes on while their first message is on its way goes on in the conversation that it began. */
function useGoingOn(id: string | null): boolean {
  const before = useRef(id);
  const goesOn = before.current === null && id !== null && begunHere() === id;
  useEffect(() => void (before.current = id), [id]);
  return goesOn;
}
