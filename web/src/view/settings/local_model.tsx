// The small model that runs on this machine: installed while one watches, then used like any other.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Refused } from "../../core/api";
import type { LocalTold, ModelList } from "../../core/protocol";
import { attempt } from "../app/actions";
import { api, say } from "../app/store";
import { s } from "../text/index";
import { set } from "../text/settings";
import { sayAnswers, type Take } from "./model";

const LOOK_MS = 1_000;
const AT = "api/models/local";

export function LocalModel({ isUsed, take }: { isUsed: boolean; take: Take }) {
  const told = useSignal<LocalTold | null>(null);
  const busy = useSignal(false);
  const isComing = told.value?.state === "installing";
  const load = async () => {
    const before = told.value?.state;
    told.value = await api.get<LocalTold>(AT);
    if (before === "installing" && told.value.state === "installed") take(await api.get<ModelList>("api/models"));
  };
  useEffect(() => {
    // A server may run without one.
    void load().catch((error: unknown) => { if (!(error instanceof Refused)) throw error; });
  }, []);
  useEffect(() => {
    if (!isComing) return;
    const looking = setInterval(() => void load().catch(() => undefined), LOOK_MS);
    return () => clearInterval(looking);
  }, [isComing]);
  const work = async (what: () => Promise<unknown>) => {
    busy.value = true;
    await attempt(what);
    await load().catch(() => undefined);
    busy.value = false;
  };
  const install = () => work(async () => (told.value = await api.post<LocalTold>(`${AT}/install`)));
  const cancel = () => work(() => api.delete(`${AT}/install`));
  const use = () => work(async () => {
    const used = await api.post<ModelList>("api/models/connect", { provider: "local", model: told.value?.name });
    take(used);
    sayAnswers(used);
  });
  const remove = () => work(async () => {
    await api.delete(AT);
    say(set.local.removed);
    take(await api.get<ModelList>("api/models"));
  });
  const local = told.value;
  if (!local) return null;
  const { state } = local;
  const isThere = state === "installed";
  return (
    <div class="fields" role="group" aria-labelledby="set-local">
      <h4 id="set-local">{set.local.title}</h4>
      <p class="note quiet">{local.name}{isThere && ` · ${local.running ? set.local.running : set.local.installed}`}. {local.about}</p>
      {local.problem && <p class="note wrong" role="alert">{local.problem}</p>}
      {isComing && <p class="buttons" role="status"><progress max={100} value={local.percent} aria-label={set.local.installing} /> <span>{set.local.installing} {set.local.progress(local.done_bytes, local.total_bytes)}</span></p>}
      <p class="buttons">
        {isComing && <button type="button" onClick={() => void cancel()}>{s.cancel}</button>}
        {!isThere && !isComing && <button type="button" disabled={busy.value} onClick={() => void install()}>{state === "failed" ? set.local.again : set.local.install}</button>}
        {!isThere && !isComing && <span class="note quiet">{set.local.megabytes(local.total_bytes)}</span>}
        {isThere && !isUsed && <button type="button" class="strong" disabled={busy.value} onClick={() => void use()}>{set.local.use}</button>}
        {isThere && !local.current && <button type="button" disabled={busy.value} onClick={() => void install()}>{set.local.update}</button>}
        {isThere && isUsed && <span class="note quiet">{set.local.inUse}</span>}
        <span class="spread" />
        {isThere && !isUsed && <button type="button" class="quiet" disabled={busy.value} onClick={() => void remove()}>{set.local.remove}</button>}
      </p>
    </div>
  );
}
