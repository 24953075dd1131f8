// Setting up a provider and choosing one of its models.

import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Refused } from "../../core/api";
import type { ModelList, ProviderTold, Tried } from "../../core/protocol";
import { aboutModel, Picker, type Offer } from "../shared/model_picker";
import { api, model, say } from "../app/store";
import { set } from "../text/settings";
import { sayAnswers, type Take } from "./model";

interface Given {
  providers: readonly ProviderTold[];
  chosen: Signal<string>;
  take: Take;
  load: () => Promise<unknown>;
}

export function Connect({ providers, chosen, take, load }: Given) {
  const others = providers.filter((each) => each.name !== "local");
  const provider = others.find((each) => each.name === chosen.value) ?? others[0];
  const choice = (each: ProviderTold) => <option key={each.name} value={each.name}>{each.ready ? `${each.label} (${set.whyReady[each.source]})` : each.label}</option>;
  const ready = others.filter((each) => each.ready);
  return (
    <div class="fields">
      <label>{set.provider}{" "}
        <select id="set-provider" value={provider?.name} onChange={(event) => (chosen.value = event.currentTarget.value)}>
          {ready.length > 0 && <optgroup label={set.providersReady}>{ready.map(choice)}</optgroup>}
          <optgroup label={set.providersOther}>{others.filter((each) => !each.ready).map(choice)}</optgroup>
        </select>
      </label>
      {provider && <Form key={provider.name} provider={provider} take={take} load={load} />}
    </div>
  );
}

function Form({ provider, take, load }: { provider: ProviderTold; take: Take; load: () => Promise<unknown> }) {
  // An address of somebody's own is shown where it can be changed; emptied, the provider's own is asked again.
  const kept = provider.base_url === provider.default_url ? "" : provider.base_url;
  const url = useSignal(kept);
  const key = useSignal("");
  const name = useSignal(usual(provider));
  const busy = useSignal(false);
  const tried = useSignal<Tried | null>(null);
  // A list that had not come when it was asked for is there soon after.
  useEffect(() => {
    if (!provider.ready || provider.models.length || !provider.problem) return;
    const timer = setTimeout(() => void load(), 2_000);
    return () => clearTimeout(timer);
  }, [provider]);
  const offers = offered(provider, url.value.trim() || provider.default_url, tried.value);
  const isMoved = url.value.trim() !== kept;
  const wanted = () => ({
    provider: provider.name,
    // What is shown may lack a password that is kept: only another address is sent.
    ...(isMoved ? { base_url: url.value.trim() || provider.default_url } : {}),
    ...(key.value ? { key: key.value } : {}),
    ...(name.value ? { model: name.value } : {}),
  });
  /** What is wrong is said where it was asked, word for word. */
  const work = async (what: () => Promise<unknown>) => {
    busy.value = true;
    tried.value = tried.value && { ...tried.value, detail: "" };
    try {
      await what();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      tried.value = { ok: false, detail: error.message, models: tried.value?.models ?? [] };
    } finally {
      busy.value = false;
    }
  };
  const test = () => work(async () => (tried.value = await api.post<Tried>("api/models/test", wanted())));
  const use = () => work(async () => {
    const told = await api.post<ModelList>("api/models/connect", wanted());
    key.value = "";
    take(told);
    sayAnswers(told);
  });
  const keep = () => work(async () => {
    const { base_url, key: given } = { base_url: undefined, key: undefined, ...wanted() };
    take(await api.put<ModelList>(`api/models/providers/${provider.name}`, { ...(base_url ? { base_url } : {}), ...(given ? { key: given } : {}) }));
    key.value = "";
    say(set.kept(provider.label));
  });
  const forget = () => work(async () => {
    take(await api.delete<ModelList>(`api/models/providers/${provider.name}`));
    say(set.forgotten(provider.label));
  });
  const known = offers.find((each) => each.name === name.value);
  const isAnyServer = provider.name === "openai";
  const address = <><label>{set.baseUrl} <input type="url" value={url.value} placeholder={provider.default_url} onInput={(event) => (url.value = event.currentTarget.value)} /></label><p class="note quiet">{isAnyServer ? set.anyServer : set.mayBeEmpty(provider.default_url)}</p></>;
  return (
    <form class="fields" onSubmit={(event) => (event.preventDefault(), void test())}>
      {(isAnyServer || provider.local) && address}
      <label>{set.key} <input type="password" autocomplete="off" value={key.value} onInput={(event) => (key.value = event.currentTarget.value)} /></label>
      <p class="note quiet">{aboutKey(provider)}</p>
      {!isAnyServer && !provider.local && <details open={Boolean(kept)}><summary>{set.anotherAddress}</summary>{address}</details>}
      <Picker label={set.modelName} value={name.value} offers={offers} choose={(chosen) => (name.value = chosen)} typing={(chosen) => (name.value = chosen)} />
      {known ? <p class="note quiet">{aboutModel(known)}</p> : provider.problem && !tried.value && <p class="note quiet">{set.noModels(provider.problem)}</p>}
      <p role="status" class={tried.value ? (tried.value.ok ? "note good" : "note wrong") : "note quiet"}>{busy.value ? set.testing : tried.value?.detail}</p>
      <p class="buttons">
        <button type="submit" disabled={busy.value}>{set.test}</button>
        <button type="button" class="strong" disabled={busy.value || !name.value} onClick={() => void use()}>{set.use}</button>
        {(key.value || isMoved) && <button type="button" disabled={busy.value} onClick={() => void keep()}>{set.keepKey}</button>}
        <span class="spread" />
        {provider.source === "settings" && <button type="button" class="quiet" disabled={busy.value} onClick={() => void forget()}>{set.forgetIt(provider.label)}</button>}
      </p>
    </form>
  );
}

/** The model to begin with: the one that answers, if it is this provider's; else its default, unless its server is known not to have it. */
function usual({ name, default_model, models }: ProviderTold): string {
  if (model.value?.name.startsWith(`${name}:`)) return model.value.name.slice(name.length + 1);
  return !models.length || models.some((each) => each.name === `${name}:${default_model}`) ? default_model : "";
}

const FREE = { input: 0, output: 0, cached: null, written: null };

function isOnThisMachine(url: string): boolean {
  return /^https?:\/\/(127\.0\.0\.1|localhost|\[::1\])(?=[:/]|$)/i.test(url);
}

/** Its models by their own names; what a test has found at `url`, too, of which no more is known than where it is. */
function offered(provider: ProviderTold, url: string, tried: Tried | null): readonly Offer[] {
  const known = provider.models.map((each) => ({ ...each, name: each.name.slice(provider.name.length + 1) }));
  const names = new Set(known.map((each) => each.name));
  const more = (tried?.models ?? []).filter((each) => !names.has(each));
  return [...known, ...more.map((name) => ({ name, window_tokens: null, answer_tokens: null, takes: [], takes_guessed: true, ...(provider.local && isOnThisMachine(url) ? { price: FREE } : {}) }))];
}

function aboutKey(provider: ProviderTold): string {
  if (provider.key_from) return set.keyFrom(provider.key_from);
  if (provider.has_key) return set.keyKept;
  return provider.local ? set.keyNotNeeded : set.keyHelp;
}
