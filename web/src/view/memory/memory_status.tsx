// One line beside a session's title: a memory state that the user can act on or waits for. It links to the memory
// page. An ordinary pending commit is not shown here.

import { computed } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { MemoryStatus } from "../../core/memory_commits";
import { clock, shortTime } from "../../core/format_time";
import { commitRequested, dismissedSessions, clearCommitRequested } from "./pending";
import { current, now, active, session, tick } from "../app/store";
import { s } from "../text/index";

/** Return the time of the next retry, if it is in the future. */
export function retryTime(retry_at: number | null, at: number): string {
  return retry_at && retry_at > at ? clock(retry_at) : "";
}

function statusText(status: MemoryStatus, at: number): string {
  switch (status.state) {
    case "dropped":
      return s.memory.isExcluded;
    case "remembered":
      return s.memory.remembered(shortTime(status.at, at));
    case "failed":
      return s.memory.failed(retryTime(status.retry_at, at));
    case "in_doubt":
      return s.memory.inDoubt;
    case "forgetting":
      return s.memory.states.retracting;
    case "committing":
      return s.memory.states.committing;
    case "waiting":
      return s.memory.states.owed;
  }
}

const DISMISSED: MemoryStatus = { state: "dropped", at: 0, retry_at: 0, detail: "" };

function currentMemoryStatus(): MemoryStatus | null {
  void tick.value;
  const { memoryCommits: memory } = active.conversation;
  // An entry that was dismissed before the session was loaded comes with no event.
  return memory.status() ?? (memory.isLoaded && dismissedSessions.value.has(current.value ?? "") ? DISMISSED : null);
}

/** The memory status of the current session as text; empty if there is none. */
export const memoryStatusText = computed(() => {
  const status = currentMemoryStatus();
  const isExcluded = session.value?.remember === false && (!status || status.state === "remembered");
  return isExcluded ? s.memory.isExcluded : status ? statusText(status, now.value) : "";
});

export function MemoryStatusLine() {
  const status = currentMemoryStatus();
  const id = current.value ?? "";
  const isFinished = status?.state === "remembered" || status?.state === "dropped";
  useEffect(() => void (isFinished && clearCommitRequested([id])), [id, isFinished]);
  const isQuiet = status?.state === "waiting" && !commitRequested.value.has(id);
  if (isQuiet || !memoryStatusText.value) return null;
  const needsAttention = status?.state === "failed" || status?.state === "in_doubt";
  return <a class={needsAttention ? "remembered needs" : "remembered"} href="#memory" title={status?.detail}>{memoryStatusText.value}</a>;
}
