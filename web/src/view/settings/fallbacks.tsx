// Models that are asked where the one that answers cannot.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Refused } from "../../core/api";
import type { ModelList, ProviderTold, SettingList } from "../../core/protocol";
import { attempt } from "../actions";
import { Picker } from "../picker";
import { api } from "../state";
import { s } from "../strings";
import type { Take } from "./model";

export function Fallbacks({ providers, take }: { providers: readonly ProviderTold[]; take: Take }) {
  const names = useSignal<readonly string[]>([]);
  const fixed = useSignal("");
  const wrong = useSignal("");
  useEffect(() => void attempt(async () => {
    const found = (await api.get<SettingList>("api/settings")).settings.find((each) => each.name === "fallback_models");
    names.value = Array.isArray(found?.value) ? found.value : [];
    fixed.value = found && found.source !== "file" && found.source !== "default" ? found.source : "";
  }), []);
  const change = async (wanted: readonly string[]) => {
    wrong.value = "";
    try {
      take(await api.put<ModelList>("api/models/fallbacks", { models: wanted }));
      names.value = wanted;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = error.message;
    }
  };
  const offers = providers.flatMap((each) => each.models).filter((each) => !names.value.includes(each.name));
  return (
    <div class="fields">
      <h4>{s.set.fallbacks}</h4>
      <p class="note quiet">{names.value.length ? s.set.fallbacksHelp : s.set.noFallbacks} {fixed.value && s.set.fallbacksFixed(fixed.value)}</p>
      <ol aria-label={s.set.fallbacks}>
        {names.value.map((name) => <li key={name}><p class="buttons"><span>{name}</span><span class="spread" />{!fixed.value && <button type="button" class="quiet" aria-label={`${s.set.remove} ${name}`} onClick={() => void change(names.value.filter((each) => each !== name))}>{s.set.remove}</button>}</p></li>)}
      </ol>
      {!fixed.value && <Picker key={names.value.join()} label={s.set.addFallback} value="" offers={offers} choose={(name) => name && void change([...names.value, name])} />}
      <p role="status" class="note wrong">{wrong.value}</p>
    </div>
  );
}
