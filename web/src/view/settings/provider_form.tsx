// Set up a provider and choose one of its models.

import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { AvailableModels, ModelProviderInfo, ConnectionTestResult } from "../../core/protocol";
import { modelSummary, ModelPicker, type ModelOption } from "../shared/model_picker";
import { api, defaultModel, showNotice } from "../app/store";
import { settingsText } from "../text/settings";
import { showNewModel, type ModelsHandler } from "./model";

interface ProviderFormProps {
  providers: readonly ModelProviderInfo[];
  chosen: Signal<string>;
  onModels: ModelsHandler;
  load: () => Promise<unknown>;
}

export function ProviderForm({ providers, chosen, onModels, load }: ProviderFormProps) {
  const others = providers.filter((each) => each.name !== "local");
  const provider = others.find((each) => each.name === chosen.value) ?? others[0];
  const choice = (each: ModelProviderInfo) => <option key={each.name} value={each.name}>{each.ready ? `${each.label} (${settingsText.readySources[each.source]})` : each.label}</option>;
  const ready = others.filter((each) => each.ready);
  return (
    <div class="fields">
      <label>{settingsText.provider}{" "}
        <select id="set-provider" value={provider?.name} onChange={(event) => (chosen.value = event.currentTarget.value)}>
          {ready.length > 0 && <optgroup label={settingsText.providersReady}>{ready.map(choice)}</optgroup>}
          <optgroup label={settingsText.providersOther}>{others.filter((each) => !each.ready).map(choice)}</optgroup>
        </select>
      </label>
      {provider && <ProviderFields key={provider.name} provider={provider} onModels={onModels} load={load} />}
    </div>
  );
}

function ProviderFields({ provider, onModels, load }: { provider: ModelProviderInfo; onModels: ModelsHandler; load: () => Promise<unknown> }) {
  // Show a custom address for editing; emptied, the provider's default applies.
  const customUrl = provider.base_url === provider.default_url ? "" : provider.base_url;
  const url = useSignal(customUrl);
  const key = useSignal("");
  const name = useSignal(initialModel(provider));
  const busy = useSignal(false);
  const testResult = useSignal<ConnectionTestResult | null>(null);
  // Load again if the list of models had not arrived in time.
  useEffect(() => {
    if (!provider.ready || provider.models.length || !provider.problem) return;
    const timer = setTimeout(() => void load(), 2_000);
    return () => clearTimeout(timer);
  }, [provider]);
  const options = modelOptions(provider, url.value.trim() || provider.default_url, testResult.value);
  const isUrlChanged = url.value.trim() !== customUrl;
  const requestBody = () => ({
    provider: provider.name,
    // The address shown may lack a stored password: send it only if it was changed.
    ...(isUrlChanged ? { base_url: url.value.trim() || provider.default_url } : {}),
    ...(key.value ? { key: key.value } : {}),
    ...(name.value ? { model: name.value } : {}),
  });
  /** Show errors at the form, word for word. */
  const runRequest = async (request: () => Promise<unknown>) => {
    busy.value = true;
    testResult.value = testResult.value && { ...testResult.value, detail: "" };
    try {
      await request();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      testResult.value = { ok: false, detail: error.message, models: testResult.value?.models ?? [] };
    } finally {
      busy.value = false;
    }
  };
  const test = () => runRequest(async () => (testResult.value = await api.post<ConnectionTestResult>("api/models/test", requestBody())));
  const use = () => runRequest(async () => {
    const list = await api.post<AvailableModels>("api/models/connect", requestBody());
    key.value = "";
    onModels(list);
    showNewModel(list);
  });
  const saveForLater = () => runRequest(async () => {
    const { base_url, key: given } = { base_url: undefined, key: undefined, ...requestBody() };
    onModels(await api.put<AvailableModels>(`api/models/providers/${provider.name}`, { ...(base_url ? { base_url } : {}), ...(given ? { key: given } : {}) }));
    key.value = "";
    showNotice(settingsText.providerSaved(provider.label));
  });
  const forgetProvider = () => runRequest(async () => {
    onModels(await api.delete<AvailableModels>(`api/models/providers/${provider.name}`));
    showNotice(settingsText.providerForgotten(provider.label));
  });
  const modelInfo = options.find((each) => each.name === name.value);
  const isAnyServer = provider.name === "openai";
  const address = <><label>{settingsText.baseUrl} <input type="url" value={url.value} placeholder={provider.default_url} onInput={(event) => (url.value = event.currentTarget.value)} /></label><p class="note quiet">{isAnyServer ? settingsText.anyAddress : settingsText.defaultUrl(provider.default_url)}</p></>;
  return (
    <form class="fields" onSubmit={(event) => (event.preventDefault(), void test())}>
      {(isAnyServer || provider.local) && address}
      <label>{settingsText.key} <input type="password" autocomplete="off" value={key.value} onInput={(event) => (key.value = event.currentTarget.value)} /></label>
      <p class="note quiet">{keyHelp(provider)}</p>
      {!isAnyServer && !provider.local && <details open={Boolean(customUrl)}><summary>{settingsText.anotherAddress}</summary>{address}</details>}
      <ModelPicker label={settingsText.modelName} value={name.value} options={options} onChoose={(chosen) => (name.value = chosen)} onType={(chosen) => (name.value = chosen)} />
      {modelInfo ? <p class="note quiet">{modelSummary(modelInfo)}</p> : provider.problem && !testResult.value && <p class="note quiet">{settingsText.noModels(provider.problem)}</p>}
      <p role="status" class={testResult.value ? (testResult.value.ok ? "note good" : "note wrong") : "note quiet"}>{busy.value ? settingsText.testing : testResult.value?.detail}</p>
      <p class="buttons">
        <button type="submit" disabled={busy.value}>{settingsText.test}</button>
        <button type="button" class="strong" disabled={busy.value || !name.value} onClick={() => void use()}>{settingsText.use}</button>
        {(key.value || isUrlChanged) && <button type="button" disabled={busy.value} onClick={() => void saveForLater()}>{settingsText.saveForLater}</button>}
        <span class="spacer" />
        {provider.source === "settings" && <button type="button" class="quiet" disabled={busy.value} onClick={() => void forgetProvider()}>{settingsText.forgetProvider(provider.label)}</button>}
      </p>
    </form>
  );
}

/** Return the model to begin with: the active one of this provider, else its default, unless the server does not have it. */
function initialModel({ name, default_model, models }: ModelProviderInfo): string {
  if (defaultModel.value?.name.startsWith(`${name}:`)) return defaultModel.value.name.slice(name.length + 1);
  return !models.length || models.some((each) => each.name === `${name}:${default_model}`) ? default_model : "";
}

const FREE = { input: 0, output: 0, cached: null, written: null };

function isOnThisMachine(url: string): boolean {
  return /^https?:\/\/(127\.0\.0\.1|localhost|\[::1\])(?=[:/]|$)/i.test(url);
}

/** Return the provider's models, and those that a test found at `url`, of which only the name is known. */
function modelOptions(provider: ModelProviderInfo, url: string, testResult: ConnectionTestResult | null): readonly ModelOption[] {
  const known = provider.models.map((each) => ({ ...each, name: each.name.slice(provider.name.length + 1) }));
  const names = new Set(known.map((each) => each.name));
  const found = (testResult?.models ?? []).filter((each) => !names.has(each));
  return [...known, ...found.map((name) => ({ name, window_tokens: null, answer_tokens: null, takes: [], takes_guessed: true, ...(provider.local && isOnThisMachine(url) ? { price: FREE } : {}) }))];
}

function keyHelp(provider: ModelProviderInfo): string {
  if (provider.key_from) return settingsText.keyFrom(provider.key_from);
  if (provider.has_key) return settingsText.keyStored;
  return provider.local ? settingsText.keyNotNeeded : settingsText.keyHelp;
}
