// At the foot of where one writes: how full the model's window is, and what the conversation has cost.

import { useEffect } from "preact/hooks";
import type { Conversation } from "../../core/conversation";
import { look } from "../app/session_sync";
import { looked, open, session, tick, windowTokens } from "../app/store";
import { s } from "../text/index";

const FULL = 0.8;
/** So far back an answer is looked for that says it. */
const TURNS = 20;
const ROUND = 2 * Math.PI * 6;

/** How many tokens the model was sent for its last answer; 0 where that says nothing about the next. */
export function contextTokens(conversation: Conversation): number {
  const since = conversation.course.summary?.at ?? 0;
  for (const { live, entries } of conversation.ordered().slice(-TURNS).reverse()) {
    const last = live && entries.findLast((entry) => entry.context_tokens > 0);
    if (last) return last.at > since ? last.context_tokens : 0;
  }
  return 0;
}

/** Who wrote the newest answer. */
export function wroteLast(conversation: Conversation): string {
  for (const { entries } of conversation.ordered().slice(-TURNS).reverse()) {
    const last = entries.findLast((entry) => entry.model);
    if (last) return last.model;
  }
  return "";
}

/** What something has cost, in words; of the demo nobody asks. */
export function costOf(micros: number | null | undefined, model: string): string {
  if (micros != null) return s.price(micros / 1e6);
  return model === "demo" ? "" : s.priceUnknown;
}

export function Spent() {
  void tick.value;
  const row = session.value;
  const known = looked.value;
  // Another agent or model may read more at once, or less.
  useEffect(() => {
    if (row && known?.id === row.id && (known.agent !== row.agent || known.model !== row.model)) void look(row.id).catch(() => undefined);
  }, [row?.id, row?.agent, row?.model]);
  return <span class="spent"><Ring read={contextTokens(open.conversation)} window={windowTokens.value} /><Cost /></span>;
}

function Ring({ read, window }: { read: number; window: number }) {
  if (!read || !window) return null;
  const share = Math.min(read / window, 1);
  const said = s.windowUsed(Math.max(1, Math.round(share * 100)), read, window);
  return (
    <svg class={share > FULL ? "ring full" : "ring"} viewBox="0 0 16 16" width="16" height="16" role="img" aria-label={said}>
      <title>{said}</title>
      <circle cx="8" cy="8" r="6" />
      <circle class="used" cx="8" cy="8" r="6" stroke-dasharray={`${share * ROUND} ${ROUND}`} transform="rotate(-90 8 8)" />
    </svg>
  );
}

function Cost() {
  const used = session.value?.usage;
  if (!used || used.input_tokens + used.output_tokens === 0) return null;
  const said = costOf(used.cost_micros, wroteLast(open.conversation));
  if (!said) return null;
  return <span class={used.cost_micros === null ? "note quiet unknown" : "note quiet"} title={s.tokens(used.input_tokens, used.output_tokens, used.cached_tokens, used.estimated_tokens)}>{said}</span>;
}
