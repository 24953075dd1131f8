// What is remembered: who keeps it, what waits to be remembered, and all that is known.

import { useEffect, useRef } from "preact/hooks";
import { answering, link, panel } from "../app/store";
import { s } from "../text/index";
import { about, askOffBy, failing, leaveNow, load, look, lookAgain, offBy, outcome, problem, words } from "./store";
import { Known } from "./memory_list";
import { Kept } from "./unforgettable_list";
import { Waiting } from "./pending_list";

const LOOK_MS = 3_000;

export function Memory() {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    box.current?.focus({ preventScroll: true });
    const timer = setInterval(() => void lookAgain(), LOOK_MS);
    addEventListener("pagehide", leaveNow);
    return () => {
      clearInterval(timer);
      removeEventListener("pagehide", leaveNow);
      leaveNow();
      words.value = outcome.value = "";
    };
  }, []);
  const isLost = link.value === "lost";
  // At once, and whenever the server is back.
  useEffect(() => {
    if (isLost) return;
    void look();
  }, [isLost]);
  const told = about.value;
  return (
    <div class="memory-frame">
      {isLost && <p class="banner" role="status">{s.memory.lost}</p>}
      <div class="memory" ref={box} tabIndex={-1} role="region" aria-label={s.memory.title}>
        {!told && !problem.value && <p class="note quiet" role="status">{s.loading}</p>}
        {problem.value && !isLost && <p class="note wrong buttons" role="alert"><span>{s.memory.failedTitle} {problem.value}</span> <button type="button" onClick={() => void load()}>{s.tryAgain}</button></p>}
        {told && !problem.value && <Keeper />}
        {unable() && <p class="card"><span>{unable()}</span><span class="buttons"><button type="button" onClick={() => (panel.value = "settings")}>{s.connectModel}</button></span></p>}
        {(told || problem.value) && <Waiting />}
        {(told || problem.value) && <Kept />}
        {told && <Known />}
      </div>
    </div>
  );
}

/** Say why nothing is remembered, where the model in use cannot write notes; else return nothing. */
function unable(): string {
  if (about.value?.provider !== "notes") return "";
  return s.memory.unable[answering.value?.name.split(":")[0] ?? ""] ?? "";
}

/** Who keeps it, and how that goes, in one line. */
function Keeper() {
  const told = about.value;
  if (!told) return null;
  if (told.provider === "off") return <Off />;
  const { ok, detail } = told.health;
  const well = failing.value ? <span class="note">{s.memory.butNot(failing.value)}</span> : <span class="note good">{s.memory.well}</span>;
  return (
    <p class="keeper note quiet">
      {s.memory.provider(told.provider)} {ok ? !unable() && well : <span class="note wrong">{s.memory.unwell(detail)}</span>} {ok && (told.shows ? detail : s.memory.cannotShow)}
    </p>
  );
}

/** How to have it, where that is said. */
function Off() {
  useEffect(() => void askOffBy(), []);
  const how = s.memory.offHow(offBy.value);
  return (
    <div class="card">
      <p>{s.memory.off}</p>
      <p>{how}</p>
      <p><code>{s.memory.offLine(offBy.value)}</code></p>
    </div>
  );
}
