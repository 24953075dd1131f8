// Below the composer: how full the model's context window is, and what the session has cost.

import { useEffect } from "preact/hooks";
import type { Conversation } from "../../core/conversation";
import { loadSession } from "../app/session_sync";
import { loadedSession, active, session, tick, windowTokens } from "../app/store";
import { s } from "../text/index";

const WARNING_SHARE = 0.8;
/** How many turns to search for the last answer. */
const TURNS_SEARCHED_MAX = 20;
const CIRCUMFERENCE = 2 * Math.PI * 6;

/** Return how many tokens the model received for its last answer; 0 if that says nothing about the next one. */
export function contextTokens(conversation: Conversation): number {
  const since = conversation.meta.summary?.at ?? 0;
  for (const { live, entries } of conversation.orderedTurns().slice(-TURNS_SEARCHED_MAX).reverse()) {
    const last = live && entries.findLast((entry) => entry.context_tokens > 0);
    if (last) return last.at > since ? last.context_tokens : 0;
  }
  return 0;
}

/** Return the model of the newest answer. */
export function lastModel(conversation: Conversation): string {
  for (const { entries } of conversation.orderedTurns().slice(-TURNS_SEARCHED_MAX).reverse()) {
    const last = entries.findLast((entry) => entry.model);
    if (last) return last.model;
  }
  return "";
}

/** Return a cost as text; "" for the demo. */
export function formatCost(micros: number | null | undefined, model: string): string {
  if (micros != null) return s.price(micros / 1e6);
  return model === "demo" ? "" : s.priceUnknown;
}

export function UsageMeter() {
  void tick.value;
  const row = session.value;
  const loaded = loadedSession.value;
  // Another agent or model may have another context window.
  useEffect(() => {
    if (row && loaded?.id === row.id && (loaded.agent !== row.agent || loaded.model !== row.model)) void loadSession(row.id).catch(() => undefined);
  }, [row?.id, row?.agent, row?.model]);
  return <span class="usage"><ContextRing usedTokens={contextTokens(active.conversation)} windowTokens={windowTokens.value} /><Cost /></span>;
}

function ContextRing({ usedTokens, windowTokens }: { usedTokens: number; windowTokens: number }) {
  if (!usedTokens || !windowTokens) return null;
  const share = Math.min(usedTokens / windowTokens, 1);
  const label = s.windowUsed(Math.max(1, Math.round(share * 100)), usedTokens, windowTokens);
  return (
    <svg class={share > WARNING_SHARE ? "ring full" : "ring"} viewBox="0 0 16 16" width="16" height="16" role="img" aria-label={label}>
      <title>{label}</title>
      <circle cx="8" cy="8" r="6" />
      <circle class="used" cx="8" cy="8" r="6" stroke-dasharray={`${share * CIRCUMFERENCE} ${CIRCUMFERENCE}`} transform="rotate(-90 8 8)" />
    </svg>
  );
}

function Cost() {
  const usage = session.value?.usage;
  if (!usage || usage.input_tokens + usage.output_tokens === 0) return null;
  const text = formatCost(usage.cost_micros, lastModel(active.conversation));
  if (!text) return null;
  return <span class={usage.cost_micros === null ? "note quiet unknown" : "note quiet"} title={s.tokens(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.estimated_tokens)}>{text}</span>;
}
