// The conversation: follows its end until the reader scrolls up, loads what is earlier as it comes into view, and
// never moves what is being read.

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { actions } from "../app/actions";
import { TurnView } from "./turn";
import { modelHere } from "../composer/agent_model";
import { discard, loadEarlier, seen, send } from "../app/session_sync";
import { Clock } from "../shared/icons";
import { CameFrom, Summarised } from "./continuation";
import { current, letters, loading, open, panel, tick } from "../app/store";
import { Steady } from "../shared/memo";
import { s } from "../text/index";

const NEAR_END_PX = 40;
const NEAR_TOP_PX = 800;
const LINE_PX = 22;

export function Transcript() {
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const busy = useRef(false);
  const below = useSignal(0);
  const height = useRef(0);
  const top = useRef(0);
  const inside = useRef<HTMLDivElement>(null);
  const drawn = useRef(false);
  const fromFirst = useRef<number | undefined>(undefined);
  const fromEnd = useRef(0);
  const id = current.value;
  void tick.value;

  useLayoutEffect(() => {
    follows.current = true;
    below.value = 0;
    box.current?.focus({ preventScroll: true });
  }, [id]);

  useLayoutEffect(() => {
    const node = box.current;
    if (node && follows.current) node.scrollTop = node.scrollHeight;
  }, [id, loading.value]);

  const earlier = async () => {
    if (busy.current || open.conversation.before === null) return;
    busy.current = true;
    try {
      // A page of turns that are not shown adds nothing to see, so nothing else would ask for the next one.
      for (let height = -1; height < 0 || height === box.current?.scrollHeight; ) {
        height = box.current?.scrollHeight ?? 0;
        if (!(await loadEarlier())) break;
        await new Promise(requestAnimationFrame);
      }
    } finally {
      busy.current = false;
    }
  };

  // Sizes also change without a drawing, as turns come into view: whoever is at the end stays there.
  useEffect(() => {
    const node = box.current;
    if (!node || !inside.current) return;
    const observer = new ResizeObserver(() => {
      if (follows.current) node.scrollTop = node.scrollHeight;
      else if (drawn.current && node.scrollHeight > height.current) below.value += Math.round((node.scrollHeight - height.current) / LINE_PX);
      height.current = node.scrollHeight;
      drawn.current = false;
      if (node.scrollTop < NEAR_TOP_PX) void earlier();
    });
    observer.observe(node);
    observer.observe(inside.current);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    drawn.current = true;
    if (id && follows.current && !document.hidden) scheduleSeen(id);
  });

  const turns = open.conversation.shown();
  const first = turns[0]?.turn;
  if (box.current && first !== fromFirst.current) fromEnd.current = box.current.scrollHeight - box.current.scrollTop;
  fromFirst.current = first;

  // With earlier ones above it, what is read stands where it stood.
  useLayoutEffect(() => {
    const node = box.current;
    if (!node || follows.current) return;
    node.scrollTop = node.scrollHeight - fromEnd.current;
    height.current = node.scrollHeight;
    drawn.current = false;
  }, [first]);

  const scrolled = () => {
    const node = box.current;
    if (!node) return;
    const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR_END_PX;
    if (atEnd) below.value = 0;
    // Only a reader moves up; what grows leaves the end behind.
    if (atEnd || node.scrollTop < top.current) follows.current = atEnd;
    top.current = node.scrollTop;
    if (node.scrollTop < NEAR_TOP_PX) void earlier();
  };

  const toEnd = () => {
    follows.current = true;
    below.value = 0;
    const node = box.current;
    if (node) node.scrollTop = node.scrollHeight;
  };

  const { summary } = open.conversation.course;
  const pending = letters.value.filter((letter) => letter.session === id);
  const sent = pending.at(-1)?.key;
  // Whoever sends something looks for it at the end.
  useLayoutEffect(() => void (sent && toEnd()), [sent]);
  const isEmpty = !turns.length && !pending.length && !loading.value;
  return (
    <div class="transcript-frame">
      <div class="transcript" ref={box} onScroll={scrolled} tabIndex={-1} role="log" aria-live="off" aria-label={s.messages}>
        <div class="turns" ref={inside}>
          {open.conversation.before !== null && <p class="note quiet">{s.showEarlier}</p>}
          {loading.value === "loading" && <p class="note quiet" role="status">{s.loading}</p>}
          {loading.value === "failed" && <p class="note wrong" role="alert">{s.cannotLoad}</p>}
          {loading.value === "gone" && <p class="note" role="alert">{s.gone}</p>}
          {isEmpty && <Greeting />}
          <CameFrom />
          {turns.flatMap((turn, place) => {
            const offersRestore = turn.removed !== null && turns.find((each) => each.removed?.seq === turn.removed?.seq) === turn;
            const version = `${turn.version} ${offersRestore}`;
            const view = <Steady key={turn.turn} version={version} draw={() => <TurnView turn={turn} version={version} offersRestore={offersRestore} />} />;
            const ends = summary && turn.turn <= summary.through_turn && (turns[place + 1]?.turn ?? Infinity) > summary.through_turn;
            return ends ? [view, <Summarised key={`summary ${summary.at}`} summary={summary} />] : [view];
          })}
          {pending.map((letter) => (
            <section class="turn" key={letter.key}>
              <article class="asked pending" aria-label={s.you}>
                <div class="words">{letter.text}</div>
                {letter.attachments.length > 0 && <p class="note quiet">{letter.attachments.map((each) => each.name).join(", ")}</p>}
                {letter.seq === undefined && (
                  <p class="note" role="status">
                    <Clock /> {letter.refused ?? s.notSaved}
                    {letter.refused && <><button type="button" class="quiet" onClick={() => actions.rewrite(letter)}>{s.edit}</button><button type="button" class="quiet" onClick={() => discard(letter.key)}>{s.remove}</button></>}
                  </p>
                )}
              </article>
            </section>
          ))}
        </div>
      </div>
      {below.value > 0 && !follows.current && <button type="button" class="pill" onClick={toEnd}>{s.newLines(below.value)}</button>}
    </div>
  );
}

let seenTimer = 0;

function scheduleSeen(id: string): void {
  clearTimeout(seenTimer);
  seenTimer = window.setTimeout(() => void seen(id), 600);
}

function Greeting() {
  const isScripted = modelHere.value === "demo";
  return (
    <div class="greeting">
      <h2>{s.hello}</h2>
      {isScripted ? <p class="buttons"><span class="demo">{s.demoLabel}</span><button type="button" onClick={() => (panel.value = "settings")}>{s.connectModel}</button></p> : modelHere.value && <p class="note quiet">{s.answers(modelHere.value)}</p>}
      <p class="note quiet">{s.helloMore}</p>
      <ul>{(isScripted ? s.triesOfDemo : s.tries).map((text) => <li key={text}><button type="button" onClick={() => void send(text)}>{text}</button></li>)}</ul>
    </div>
  );
}
