// One quiet line beside a conversation's title: whether it is remembered. It leads to all that is.

import type { Remembered as Told } from "../core/remembering";
import { clock, moment } from "../core/times";
import { now, open, session, tick } from "./state";
import { s } from "./strings";

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

export function Remembered() {
  void tick.value;
  const told = open.conversation.memory.told();
  const isOut = session.value?.remember === false && (!told || told.state === "remembered");
  if (!told && !isOut) return null;
  const needs = told?.state === "failed" || told?.state === "in_doubt";
  return <a class={needs ? "remembered needs" : "remembered"} href="#memory" title={told?.detail}>{isOut || !told ? s.memory.notThis : words(told, now.value)}</a>;
}
