// One quiet line beside a conversation's title: what a person can do something about in its being remembered, or
// waits for. That it waits its turn is not: the details say so, and the memory page. It leads to all that is.

import { computed } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { Remembered as Told } from "../../core/memory_commits";
import { clock, moment } from "../../core/format_time";
import { hurried, letBe, unhurry } from "./pending";
import { current, now, open, session, tick } from "../app/store";
import { s } from "../text/index";

/** When something is tried again, if that is still to come. */
export function retryTime(retry_at: number | null, at: number): string {
  return retry_at && retry_at > at ? clock(retry_at) : "";
}

function words(told: Told, at: number): string {
  switch (told.state) {
    case "dropped":
      return s.memory.notThis;
    case "remembered":
      return s.memory.remembered(moment(told.at, at));
    case "failed":
      return s.memory.failed(retryTime(told.retry_at, at));
    case "in_doubt":
      return s.memory.perhaps;
    case "forgetting":
      return s.memory.states.retracting;
    case "committing":
      return s.memory.states.committing;
    case "waiting":
      return s.memory.states.owed;
  }
}

const LET_BE: Told = { state: "dropped", at: 0, retry_at: 0, detail: "" };

function told(): Told | null {
  void tick.value;
  const { memory } = open.conversation;
  // What was let be before the conversation was read here comes with no event.
  return memory.told() ?? (memory.isRead && letBe.value.has(current.value ?? "") ? LET_BE : null);
}

/** Whether the conversation that is open is remembered, in words; empty where there is nothing to say. */
export const rememberedHere = computed(() => {
  const found = told();
  const isOut = session.value?.remember === false && (!found || found.state === "remembered");
  return isOut ? s.memory.notThis : found ? words(found, now.value) : "";
});

export function Remembered() {
  const found = told();
  const id = current.value ?? "";
  const isDone = found?.state === "remembered" || found?.state === "dropped";
  useEffect(() => void (isDone && unhurry([id])), [id, isDone]);
  const isQuiet = found?.state === "waiting" && !hurried.value.has(id);
  if (isQuiet || !rememberedHere.value) return null;
  const needs = found?.state === "failed" || found?.state === "in_doubt";
  return <a class={needs ? "remembered needs" : "remembered"} href="#memory" title={found?.detail}>{rememberedHere.value}</a>;
}
