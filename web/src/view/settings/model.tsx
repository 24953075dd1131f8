// Connecting a model: tried for real before it is used, with exactly what is wrong when it is.

import { useSignal } from "@preact/signals";
import type { ModelList, Tried } from "../../core/protocol";
import { attempt } from "../actions";
import { api, isDemo, model, models } from "../state";
import { s } from "../strings";

export function ModelSection() {
  const url = useSignal("");
  const key = useSignal("");
  const name = useSignal("");
  const busy = useSignal(false);
  const tried = useSignal<Tried | null>(null);
  const wanted = () => ({
    ...(url.value.trim() ? { base_url: url.value.trim() } : {}),
    ...(key.value ? { key: key.value } : {}),
    ...(name.value.trim() ? { model: name.value.trim() } : {}),
  });
  const work = async (what: () => Promise<unknown>) => {
    busy.value = true;
    await attempt(what);
    busy.value = false;
  };
  const test = () => work(async () => (tried.value = await api.post<Tried>("api/models/test", wanted())));
  const use = () =>
    work(async () => {
      models.value = (await api.post<ModelList>("api/models/connect", wanted())).models;
      key.value = "";
    });
  const forget = () => work(async () => (models.value = (await api.post<ModelList>("api/models/disconnect")).models));
  return (
    <section aria-labelledby="set-model">
      <h3 id="set-model">{s.set.model}</h3>
      <p>{isDemo.value ? <span class="demo">{s.demoLabel}</span> : s.set.answersNow(model.value?.name ?? "")} <span class="note quiet">{model.value?.why}</span></p>
      <form class="fields" onSubmit={(event) => (event.preventDefault(), void test())}>
        <label>{s.set.baseUrl} <input type="url" value={url.value} placeholder={s.set.baseUrlExample} onInput={(event) => (url.value = event.currentTarget.value)} /></label>
        <p class="note quiet">{s.set.baseUrlHelp}</p>
        <label>{s.set.key} <input type="password" autocomplete="off" value={key.value} onInput={(event) => (key.value = event.currentTarget.value)} /></label>
        <p class="note quiet">{s.set.keyHelp}</p>
        <label>{s.set.modelName} <input list="set-models" value={name.value} onInput={(event) => (name.value = event.currentTarget.value)} /></label>
        <datalist id="set-models">{tried.value?.models?.map((each) => <option key={each} value={each} />)}</datalist>
        <p role="status" class={tried.value ? (tried.value.ok ? "note good" : "note wrong") : "note quiet"}>{busy.value ? s.set.testing : tried.value?.detail}</p>
        <p class="buttons">
          <button type="submit" disabled={busy.value}>{s.set.test}</button>
          <button type="button" class="strong" disabled={busy.value || !name.value.trim()} onClick={() => void use()}>{s.set.use}</button>
          <span class="spread" />
          <button type="button" class="quiet" disabled={busy.value} onClick={() => void forget()}>{s.set.forget}</button>
        </p>
      </form>
    </section>
  );
}
