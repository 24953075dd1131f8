// The transcript: stays at the end until the reader scrolls up, loads earlier turns as the reader reaches them, and
// keeps the reading position.

import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { actions } from "../app/actions";
import { TurnView } from "./turn";
import { currentModel } from "../composer/agent_model";
import { discardMessage, loadEarlier, markSeen, send } from "../app/session_sync";
import { PendingIcon } from "../shared/icons";
import { OriginNotice, SummaryDivider } from "./continuation";
import { current, outgoingMessages, loading, active, panel, tick } from "../app/store";
import { Memo } from "../shared/memo";
import { s } from "../text/index";

const NEAR_END_PX = 40;
const NEAR_TOP_PX = 800;
const LINE_PX = 22;

export function Transcript() {
  const scroller = useRef<HTMLDivElement>(null);
  const isFollowing = useRef(true);
  const isLoading = useRef(false);
  const newLineCount = useSignal(0);
  const scrollHeight = useRef(0);
  const scrollTop = useRef(0);
  const content = useRef<HTMLDivElement>(null);
  const wasRendered = useRef(false);
  const firstTurn = useRef<number | undefined>(undefined);
  const distanceFromEnd = useRef(0);
  const id = current.value;
  void tick.value;

  useLayoutEffect(() => {
    isFollowing.current = true;
    newLineCount.value = 0;
    scroller.current?.focus({ preventScroll: true });
  }, [id]);

  useLayoutEffect(() => {
    const node = scroller.current;
    if (node && isFollowing.current) node.scrollTop = node.scrollHeight;
  }, [id, loading.value]);

  const loadEarlierTurns = async () => {
    if (isLoading.current || active.conversation.earlierCursor === null) return;
    isLoading.current = true;
    try {
      // A page of hidden turns adds nothing to scroll to, so load until the height changes.
      for (let height = -1; height < 0 || height === scroller.current?.scrollHeight; ) {
        height = scroller.current?.scrollHeight ?? 0;
        if (!(await loadEarlier())) break;
        await new Promise(requestAnimationFrame);
      }
    } finally {
      isLoading.current = false;
    }
  };

  // Sizes also change without a render, as turns come into view: a reader at the end stays there.
  useEffect(() => {
    const node = scroller.current;
    if (!node || !content.current) return;
    const observer = new ResizeObserver(() => {
      if (isFollowing.current) node.scrollTop = node.scrollHeight;
      else if (wasRendered.current && node.scrollHeight > scrollHeight.current) newLineCount.value += Math.round((node.scrollHeight - scrollHeight.current) / LINE_PX);
      scrollHeight.current = node.scrollHeight;
      wasRendered.current = false;
      if (node.scrollTop < NEAR_TOP_PX) void loadEarlierTurns();
    });
    observer.observe(node);
    observer.observe(content.current);
    return () => observer.disconnect();
  }, []);

  useLayoutEffect(() => {
    wasRendered.current = true;
    if (id && isFollowing.current && !document.hidden) scheduleMarkSeen(id);
  });

  const turns = active.conversation.visibleTurns();
  const first = turns[0]?.turn;
  if (scroller.current && first !== firstTurn.current) distanceFromEnd.current = scroller.current.scrollHeight - scroller.current.scrollTop;
  firstTurn.current = first;

  // Keep the reading position when earlier turns are added above.
  useLayoutEffect(() => {
    const node = scroller.current;
    if (!node || isFollowing.current) return;
    node.scrollTop = node.scrollHeight - distanceFromEnd.current;
    scrollHeight.current = node.scrollHeight;
    wasRendered.current = false;
  }, [first]);

  const handleScroll = () => {
    const node = scroller.current;
    if (!node) return;
    const atEnd = node.scrollHeight - node.scrollTop - node.clientHeight < NEAR_END_PX;
    if (atEnd) newLineCount.value = 0;
    // Only a reader scrolls up; growing content increases the distance from the end.
    if (atEnd || node.scrollTop < scrollTop.current) isFollowing.current = atEnd;
    scrollTop.current = node.scrollTop;
    if (node.scrollTop < NEAR_TOP_PX) void loadEarlierTurns();
  };

  const scrollToEnd = () => {
    isFollowing.current = true;
    newLineCount.value = 0;
    const node = scroller.current;
    if (node) node.scrollTop = node.scrollHeight;
  };

  const { summary } = active.conversation.meta;
  const pending = outgoingMessages.value.filter((message) => message.session === id);
  const lastPendingKey = pending.at(-1)?.key;
  // Scroll to the end after a send.
  useLayoutEffect(() => void (lastPendingKey && scrollToEnd()), [lastPendingKey]);
  const isEmpty = !turns.length && !pending.length && !loading.value;
  return (
    <div class="transcript-frame">
      <div class="transcript" ref={scroller} onScroll={handleScroll} tabIndex={-1} role="log" aria-live="off" aria-label={s.messages}>
        <div class="turns" ref={content}>
          {active.conversation.earlierCursor !== null && <p class="note quiet">{s.showEarlier}</p>}
          {loading.value === "loading" && <p class="note quiet" role="status">{s.loading}</p>}
          {loading.value === "failed" && <p class="note wrong" role="alert">{s.cannotLoad}</p>}
          {loading.value === "gone" && <p class="note" role="alert">{s.sessionDeleted}</p>}
          {isEmpty && <EmptyState />}
          <OriginNotice />
          {turns.flatMap((turn, index) => {
            const offersRestore = turn.removed !== null && turns.find((each) => each.removed?.seq === turn.removed?.seq) === turn;
            const version = `${turn.version} ${offersRestore}`;
            const view = <Memo key={turn.turn} version={version} render={() => <TurnView turn={turn} version={version} offersRestore={offersRestore} />} />;
            const endsSummary = summary && turn.turn <= summary.through_turn && (turns[index + 1]?.turn ?? Infinity) > summary.through_turn;
            return endsSummary ? [view, <SummaryDivider key={`summary ${summary.at}`} summary={summary} />] : [view];
          })}
          {pending.map((message) => (
            <section class="turn" key={message.key}>
              <article class="user-message pending" aria-label={s.you}>
                <div class="words">{message.text}</div>
                {message.attachments.length > 0 && <p class="note quiet">{message.attachments.map((each) => each.name).join(", ")}</p>}
                {message.seq === undefined && (
                  <p class="note" role="status">
                    <PendingIcon /> {message.refused ?? s.notSaved}
                    {message.refused && <><button type="button" class="quiet" onClick={() => actions.returnToComposer(message)}>{s.edit}</button><button type="button" class="quiet" onClick={() => discardMessage(message.key)}>{s.remove}</button></>}
                  </p>
                )}
              </article>
            </section>
          ))}
        </div>
      </div>
      {newLineCount.value > 0 && !isFollowing.current && <button type="button" class="pill" onClick={scrollToEnd}>{s.newLines(newLineCount.value)}</button>}
    </div>
  );
}

let seenTimer = 0;

function scheduleMarkSeen(id: string): void {
  clearTimeout(seenTimer);
  seenTimer = window.setTimeout(() => void markSeen(id), 600);
}

function EmptyState() {
  const isDemo = currentModel.value === "demo";
  return (
    <div class="greeting">
      <h2>{s.hello}</h2>
      {isDemo ? <p class="buttons"><span class="demo">{s.demoLabel}</span><button type="button" onClick={() => (panel.value = "settings")}>{s.connectModel}</button></p> : currentModel.value && <p class="note quiet">{s.answers(currentModel.value)}</p>}
      <p class="note quiet">{s.helloMore}</p>
      <ul>{(isDemo ? s.triesOfDemo : s.tries).map((text) => <li key={text}><button type="button" onClick={() => void send(text)}>{text}</button></li>)}</ul>
    </div>
  );
}
