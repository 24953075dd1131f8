// Models that are asked where the one that answers cannot.

import { useSignal } from "@preact/signals";
import { Refused } from "../../core/api";
import type { ModelList, ProviderTold, SettingTold } from "../../core/protocol";
import { Picker } from "../shared/model_picker";
import { api } from "../app/store";
import { set } from "../text/settings";
import type { Take } from "./model";

interface Given {
  setting: SettingTold | undefined;
  providers: readonly ProviderTold[];
  take: Take;
}

export function Fallbacks({ setting, providers, take }: Given) {
  const wrong = useSignal("");
  const names: readonly string[] = Array.isArray(setting?.value) ? setting.value : [];
  const fixed = setting && setting.source !== "file" && setting.source !== "default" ? setting.source : "";
  const change = async (wanted: readonly string[]) => {
    wrong.value = "";
    try {
      take(await api.put<ModelList>("api/models/fallbacks", { models: wanted }));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = error.message;
    }
  };
  const offers = providers.flatMap((each) => each.models).filter((each) => !names.includes(each.name));
  return (
    <div class="fields">
      <h4>{set.fallbacks}</h4>
      <p class="note quiet">{names.length ? set.fallbacksHelp : set.noFallbacks} {fixed && set.fallbacksFixed(fixed)}</p>
      <ol aria-label={set.fallbacks}>
        {names.map((name) => <li key={name}><p class="buttons"><span>{name}</span><span class="spread" />{!fixed && <button type="button" class="quiet" aria-label={`${set.remove} ${name}`} onClick={() => void change(names.filter((each) => each !== name))}>{set.remove}</button>}</p></li>)}
      </ol>
      {!fixed && <Picker key={names.join()} label={set.addFallback} value="" offers={offers} choose={(name) => name && void change([...names, name])} />}
      <p role="status" class="note wrong">{wrong.value}</p>
    </div>
  );
}
