// The memory page: the provider's status, the queue, and all memories.

import { useEffect, useRef } from "preact/hooks";
import { activeModel, connectionStatus, panel } from "../app/store";
import { s } from "../text/index";
import { providerInfo, loadOffSource, failedSessionCount, runPendingRemovals, load, refresh, poll, offSource, outcome, loadError, searchText } from "./store";
import { MemoryList } from "./memory_list";
import { UnretractableList } from "./unretractable_list";
import { QueueList } from "./pending_list";

const POLL_MS = 3_000;

export function MemoryPage() {
  const container = useRef<HTMLDivElement>(null);
  useEffect(() => {
    container.current?.focus({ preventScroll: true });
    const timer = setInterval(() => void poll(), POLL_MS);
    addEventListener("pagehide", runPendingRemovals);
    return () => {
      clearInterval(timer);
      removeEventListener("pagehide", runPendingRemovals);
      runPendingRemovals();
      searchText.value = outcome.value = "";
    };
  }, []);
  const isLost = connectionStatus.value === "lost";
  // At once, and whenever the connection is back.
  useEffect(() => {
    if (isLost) return;
    void refresh();
  }, [isLost]);
  const info = providerInfo.value;
  return (
    <div class="memory-frame">
      {isLost && <p class="banner" role="status">{s.memory.lost}</p>}
      <div class="memory" ref={container} tabIndex={-1} role="region" aria-label={s.memory.title}>
        {!info && !loadError.value && <p class="note quiet" role="status">{s.loading}</p>}
        {loadError.value && !isLost && <p class="note wrong buttons" role="alert"><span>{s.memory.failedTitle} {loadError.value}</span> <button type="button" onClick={() => void load()}>{s.tryAgain}</button></p>}
        {info && !loadError.value && <ProviderStatus />}
        {disabledReason() && <p class="card"><span>{disabledReason()}</span><span class="buttons"><button type="button" onClick={() => (panel.value = "settings")}>{s.connectModel}</button></span></p>}
        {(info || loadError.value) && <QueueList />}
        {(info || loadError.value) && <UnretractableList />}
        {info && <MemoryList />}
      </div>
    </div>
  );
}

/** Return why nothing is remembered, if the active model cannot write notes; else "". */
function disabledReason(): string {
  if (providerInfo.value?.provider !== "notes") return "";
  return s.memory.cannotRemember[activeModel.value?.name.split(":")[0] ?? ""] ?? "";
}

/** Show the provider and its health in one line. */
function ProviderStatus() {
  const info = providerInfo.value;
  if (!info) return null;
  if (info.provider === "off") return <MemoryOff />;
  const { ok, detail } = info.health;
  const healthText = failedSessionCount.value ? <span class="note">{s.memory.healthyExcept(failedSessionCount.value)}</span> : <span class="note good">{s.memory.healthy}</span>;
  return (
    <p class="memory-provider note quiet">
      {s.memory.provider(info.provider)} {ok ? !disabledReason() && healthText : <span class="note wrong">{s.memory.unhealthy(detail)}</span>} {ok && (info.shows ? detail : s.memory.cannotList)}
    </p>
  );
}

/** Show how to turn memory on. */
function MemoryOff() {
  useEffect(() => void loadOffSource(), []);
  const instructions = s.memory.offInstructions(offSource.value);
  return (
    <div class="card">
      <p>{s.memory.off}</p>
      <p>{instructions}</p>
      <p><code>{s.memory.offLine(offSource.value)}</code></p>
    </div>
  );
}
