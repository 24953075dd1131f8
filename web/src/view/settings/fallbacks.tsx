// Fallback models: asked when the first model fails.

import { useSignal } from "@preact/signals";
import { ApiError } from "../../core/api";
import type { AvailableModels, ModelProviderInfo, SettingInfo } from "../../core/protocol";
import { ModelPicker } from "../shared/model_picker";
import { api } from "../app/store";
import { settingsText } from "../text/settings";
import type { ModelsHandler } from "./model";

interface FallbackSettingsProps {
  setting: SettingInfo | undefined;
  providers: readonly ModelProviderInfo[];
  onModels: ModelsHandler;
}

export function FallbackSettings({ setting, providers, onModels }: FallbackSettingsProps) {
  const errorText = useSignal("");
  const names: readonly string[] = Array.isArray(setting?.value) ? setting.value : [];
  const fixed = setting && setting.source !== "file" && setting.source !== "default" ? setting.source : "";
  const change = async (models: readonly string[]) => {
    errorText.value = "";
    try {
      onModels(await api.put<AvailableModels>("api/models/fallbacks", { models }));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      errorText.value = error.message;
    }
  };
  const offers = providers.flatMap((each) => each.models).filter((each) => !names.includes(each.name));
  return (
    <div class="fields">
      <h4>{settingsText.fallbacks}</h4>
      <p class="note quiet">{names.length ? settingsText.fallbacksHelp : settingsText.noFallbacks} {fixed && settingsText.fallbacksFixed(fixed)}</p>
      <ol aria-label={settingsText.fallbacks}>
        {names.map((name) => <li key={name}><p class="buttons"><span>{name}</span><span class="spacer" />{!fixed && <button type="button" class="quiet" aria-label={`${settingsText.remove} ${name}`} onClick={() => void change(names.filter((each) => each !== name))}>{settingsText.remove}</button>}</p></li>)}
      </ol>
      {!fixed && <ModelPicker key={names.join()} label={settingsText.addFallback} value="" options={offers} onChoose={(name) => name && void change([...names, name])} />}
      <p role="status" class="note wrong">{errorText.value}</p>
    </div>
  );
}
