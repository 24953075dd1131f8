// The small local model: install, use, update and remove it.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { LocalModelInfo, AvailableModels } from "../../core/protocol";
import { attempt } from "../app/actions";
import { api, showNotice } from "../app/store";
import { s } from "../text/index";
import { settingsText } from "../text/settings";
import { showNewModel, type ModelsHandler } from "./model";

const POLL_MS = 1_000;
const PATH = "api/models/local";

export function LocalModelSettings({ isUsed, onModels }: { isUsed: boolean; onModels: ModelsHandler }) {
  const info = useSignal<LocalModelInfo | null>(null);
  const busy = useSignal(false);
  const isInstalling = info.value?.state === "installing";
  const load = async () => {
    const before = info.value?.state;
    info.value = await api.get<LocalModelInfo>(PATH);
    if (before === "installing" && info.value.state === "installed") onModels(await api.get<AvailableModels>("api/models"));
  };
  useEffect(() => {
    // The server may have no local model.
    void load().catch((error: unknown) => { if (!(error instanceof ApiError)) throw error; });
  }, []);
  useEffect(() => {
    if (!isInstalling) return;
    const timer = setInterval(() => void load().catch(() => undefined), POLL_MS);
    return () => clearInterval(timer);
  }, [isInstalling]);
  const runRequest = async (request: () => Promise<unknown>) => {
    busy.value = true;
    await attempt(request);
    await load().catch(() => undefined);
    busy.value = false;
  };
  const install = () => runRequest(async () => (info.value = await api.post<LocalModelInfo>(`${PATH}/install`)));
  const cancel = () => runRequest(() => api.delete(`${PATH}/install`));
  const use = () => runRequest(async () => {
    const models = await api.post<AvailableModels>("api/models/connect", { provider: "local", model: info.value?.name });
    onModels(models);
    showNewModel(models);
  });
  const remove = () => runRequest(async () => {
    await api.delete(PATH);
    showNotice(settingsText.local.removed);
    onModels(await api.get<AvailableModels>("api/models"));
  });
  const local = info.value;
  if (!local) return null;
  const { state } = local;
  const isInstalled = state === "installed";
  return (
    <div class="fields" role="group" aria-labelledby="set-local">
      <h4 id="set-local">{settingsText.local.title}</h4>
      <p class="note quiet">{local.name}{isInstalled && ` · ${local.running ? settingsText.local.running : settingsText.local.installed}`}. {local.about}</p>
      {local.problem && <p class="note wrong" role="alert">{local.problem}</p>}
      {isInstalling && <p class="buttons" role="status"><progress max={100} value={local.percent} aria-label={settingsText.local.installing} /> <span>{settingsText.local.installing} {settingsText.local.progress(local.done_bytes, local.total_bytes)}</span></p>}
      <p class="buttons">
        {isInstalling && <button type="button" onClick={() => void cancel()}>{s.cancel}</button>}
        {!isInstalled && !isInstalling && <button type="button" disabled={busy.value} onClick={() => void install()}>{state === "failed" ? settingsText.local.again : settingsText.local.install}</button>}
        {!isInstalled && !isInstalling && <span class="note quiet">{settingsText.local.megabytes(local.total_bytes)}</span>}
        {isInstalled && !isUsed && <button type="button" class="strong" disabled={busy.value} onClick={() => void use()}>{settingsText.local.use}</button>}
        {isInstalled && !local.current && <button type="button" disabled={busy.value} onClick={() => void install()}>{settingsText.local.update}</button>}
        {isInstalled && isUsed && <span class="note quiet">{settingsText.local.inUse}</span>}
        <span class="spacer" />
        {isInstalled && !isUsed && <button type="button" class="quiet" disabled={busy.value} onClick={() => void remove()}>{settingsText.local.remove}</button>}
      </p>
    </div>
  );
}
