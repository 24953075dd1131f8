// Which model answers, and having another do so: tried for real, with exactly what is wrong when it is.

import { useSignal, type Signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { ModelList, ProviderTold, SettingList, SettingTold } from "../../core/protocol";
import { attempt } from "../app/actions";
import { answering, api, isDemo, model, models, say } from "../app/store";
import { s } from "../text/index";
import { set } from "../text/settings";
import { Connect } from "./provider_form";
import { Fallbacks } from "./fallbacks";
import { LocalModel } from "./local_model";

export type Take = (told: ModelList) => void;

export function ModelSection() {
  const providers = useSignal<readonly ProviderTold[]>([]);
  const chosen = useSignal("");
  const settings = useSignal<readonly SettingTold[]>([]);
  const take = (told: ModelList) => {
    models.value = told.models;
    providers.value = told.providers;
    chosen.value ||= firstOf(told);
    void readSettings();
  };
  const readSettings = () => attempt(async () => (settings.value = (await api.get<SettingList>("api/settings")).settings));
  const back = () => attempt(async () => {
    const told = await api.post<ModelList>("api/models/disconnect");
    take(told);
    sayAnswers(told);
  });
  const setting = (name: string) => settings.value.find((each) => each.name === name);
  const its = providers.value.find((each) => each.name === model.value?.name.split(":")[0]);
  // Why the demo answers is of the start: what is found since then says more.
  const found = providers.value.filter((each) => each.source === "port" && !model.value?.name.startsWith(`${each.name}:`));
  const load = () => attempt(async () => take(await api.get<ModelList>("api/models")));
  useEffect(() => void load(), []);
  return (
    <section aria-labelledby="set-model">
      <h3 id="set-model">{set.model}</h3>
      <p>{isDemo.value ? <span class="demo">{s.demoLabel}</span> : set.answersNow(model.value?.name ?? "")} {!(isDemo.value && found.length) && <span class="note quiet">{isDemo.value ? reasonOnly(model.value?.why ?? "") : model.value?.why}</span>}</p>
      {models.value.length > 1 && <p class="note">{answering.value?.name}: {answering.value?.why}</p>}
      {setting("model")?.source === "file" && its?.source !== "settings" && <p class="buttons"><button type="button" onClick={() => void back()}>{set.backToFound}</button></p>}
      <Found found={found} chosen={chosen} />
      <h4>{set.connect}</h4>
      {!providers.value.length && <p class="note quiet" role="status">{s.loading}</p>}
      {providers.value.length > 0 && <Connect providers={providers.value} chosen={chosen} take={take} load={load} />}
      <LocalModel isUsed={model.value?.name.startsWith("local") ?? false} take={take} />
      {!isDemo.value && <Fallbacks setting={setting("fallback_models")} providers={providers.value} take={take} />}
    </section>
  );
}

/** Why, without how to change it: that is what stands here. */
function reasonOnly(why: string): string {
  return /^.*?\.(?= |$)/.exec(why)?.[0] ?? why;
}

/** Whose model answers; else the first that is ready, else the first of all. */
function firstOf({ models: told, providers }: ModelList): string {
  const its = told.at(-1)?.name.split(":")[0];
  const known = providers.filter((each) => each.name !== "local");
  return (known.find((each) => each.name === its) ?? known.find((each) => each.ready) ?? known[0])?.name ?? "";
}

/** Servers of models on this machine that nobody has set up: one press away. */
function Found({ found, chosen }: { found: readonly ProviderTold[]; chosen: Signal<string> }) {
  if (!found.length) return null;
  return (
    <ul>
      {found.map((each) => <li key={each.name} class="buttons"><span>{set.found(each.label, each.models.length)}</span> <button type="button" onClick={() => { chosen.value = each.name; document.getElementById("set-provider")?.focus(); }}>{set.chooseIt(each.label)}</button></li>)}
    </ul>
  );
}

/** Say who answers now. */
export function sayAnswers(told: ModelList): void {
  say(set.nowAnswers(told.models.at(-1)?.name ?? ""));
}
