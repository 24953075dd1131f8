// Show the active model and change it. The server tests a new model before it is used, and shows its error.

import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { AvailableModels, ModelProviderInfo, SettingList, SettingInfo } from "../../core/protocol";
import { attempt } from "../app/actions";
import { activeModel, api, isDemo, defaultModel, models, showNotice } from "../app/store";
import { s } from "../text/index";
import { settingsText } from "../text/settings";
import { ProviderForm } from "./provider_form";
import { FallbackSettings } from "./fallbacks";
import { LocalModelSettings } from "./local_model";

export type ModelsHandler = (list: AvailableModels) => void;

export function ModelSettings() {
  const providers = useSignal<readonly ModelProviderInfo[]>([]);
  const chosen = useSignal("");
  const settings = useSignal<readonly SettingInfo[]>([]);
  const applyModels = (list: AvailableModels) => {
    models.value = list.models;
    providers.value = list.providers;
    chosen.value ||= initialProvider(list);
    void readSettings();
  };
  const readSettings = () => attempt(async () => (settings.value = (await api.get<SettingList>("api/settings")).settings));
  const disconnect = () => attempt(async () => {
    const list = await api.post<AvailableModels>("api/models/disconnect");
    applyModels(list);
    showNewModel(list);
  });
  const setting = (name: string) => settings.value.find((each) => each.name === name);
  const currentProvider = providers.value.find((each) => each.name === defaultModel.value?.name.split(":")[0]);
  // The reason for the demo dates from the start: providers found since then say more.
  const foundProviders = providers.value.filter((each) => each.source === "port" && !defaultModel.value?.name.startsWith(`${each.name}:`));
  const load = () => attempt(async () => applyModels(await api.get<AvailableModels>("api/models")));
  useEffect(() => void load(), []);
  return (
    <section aria-labelledby="set-model">
      <h3 id="set-model">{settingsText.model}</h3>
      <p>{isDemo.value ? <span class="demo">{s.demoLabel}</span> : settingsText.currentModel(defaultModel.value?.name ?? "")} {!(isDemo.value && foundProviders.length) && <span class="note quiet">{isDemo.value ? firstSentence(defaultModel.value?.why ?? "") : defaultModel.value?.why}</span>}</p>
      {models.value.length > 1 && <p class="note">{activeModel.value?.name}: {activeModel.value?.why}</p>}
      {setting("model")?.source === "file" && currentProvider?.source !== "settings" && <p class="buttons"><button type="button" onClick={() => void disconnect()}>{settingsText.useFoundProvider}</button></p>}
      <FoundProviders providers={foundProviders} chosen={chosen} />
      <h4>{settingsText.connect}</h4>
      {!providers.value.length && <p class="note quiet" role="status">{s.loading}</p>}
      {providers.value.length > 0 && <ProviderForm providers={providers.value} chosen={chosen} onModels={applyModels} load={load} />}
      <LocalModelSettings isUsed={defaultModel.value?.name.startsWith("local") ?? false} onModels={applyModels} />
      {!isDemo.value && <FallbackSettings setting={setting("fallback_models")} providers={providers.value} onModels={applyModels} />}
    </section>
  );
}

/** Return the reason without the advice that follows it. */
function firstSentence(why: string): string {
  return /^.*?\.(?= |$)/.exec(why)?.[0] ?? why;
}

/** Return the provider of the active model; else the first that is ready, else the first of all. */
function initialProvider({ models, providers }: AvailableModels): string {
  const providerName = models.at(-1)?.name.split(":")[0];
  const remoteProviders = providers.filter((each) => each.name !== "local");
  return (remoteProviders.find((each) => each.name === providerName) ?? remoteProviders.find((each) => each.ready) ?? remoteProviders[0])?.name ?? "";
}

/** List model servers on this machine that are not set up. */
function FoundProviders({ providers, chosen }: { providers: readonly ModelProviderInfo[]; chosen: Signal<string> }) {
  if (!providers.length) return null;
  return (
    <ul>
      {providers.map((each) => <li key={each.name} class="buttons"><span>{settingsText.found(each.label, each.models.length)}</span> <button type="button" onClick={() => { chosen.value = each.name; document.getElementById("set-provider")?.focus(); }}>{settingsText.chooseProvider(each.label)}</button></li>)}
    </ul>
  );
}

/** Show the new active model. */
export function showNewModel(list: AvailableModels): void {
  showNotice(settingsText.modelChanged(list.models.at(-1)?.name ?? ""));
}
