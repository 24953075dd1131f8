// What is remembered: who keeps it, what waits to be remembered, and all that is known.

import { useEffect, useRef } from "preact/hooks";
import { isDemo, link, panel } from "../state";
import { s } from "../strings";
import { about, forgetNow, load, look, outcome, problem, words } from "./desk";
import { Known } from "./known";
import { Waiting } from "./waiting";

const LOOK_MS = 3_000;

export function Memory() {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    box.current?.focus({ preventScroll: true });
    const timer = setInterval(() => document.hidden || void look(), LOOK_MS);
    addEventListener("pagehide", forgetNow);
    return () => {
      clearInterval(timer);
      removeEventListener("pagehide", forgetNow);
      forgetNow();
      words.value = outcome.value = "";
    };
  }, []);
  const isLost = link.value === "lost";
  // At once, and whenever the server is back.
  useEffect(() => {
    if (isLost) return;
    void load("again");
    void look();
  }, [isLost]);
  const told = about.value;
  return (
    <div class="memory-frame">
      {isLost && <p class="banner" role="status">{s.memory.lost}</p>}
      <div class="memory" ref={box} tabIndex={-1} role="region" aria-label={s.memory.title}>
        {!told && !problem.value && <p class="note quiet" role="status">{s.loading}</p>}
        {problem.value && !isLost && <p class="note wrong buttons" role="alert"><span>{s.memory.failedTitle} {problem.value}</span> <button type="button" onClick={() => void load()}>{s.tryAgain}</button></p>}
        {told && <Keeper />}
        {isDemo.value && told?.provider !== "off" && <p class="card"><span>{s.memory.demo}</span><span class="buttons"><button type="button" onClick={() => (panel.value = "settings")}>{s.connectModel}</button></span></p>}
        {told && <Waiting />}
        {told && <Known />}
      </div>
    </div>
  );
}

/** Who keeps it, and how that goes, in one line. */
function Keeper() {
  const told = about.value;
  if (!told) return null;
  if (told.provider === "off") return <div class="card"><p>{s.memory.off}</p><p>{s.memory.offHow}</p><p><code>{s.memory.offLine}</code></p></div>;
  const { ok, detail } = told.health;
  return (
    <p class="keeper note quiet">
      {s.memory.provider(told.provider)} {ok ? <span class="note good">{s.memory.well}</span> : <span class="note wrong">{s.memory.unwell(detail)}</span>} {ok && detail}
    </p>
  );
}
