// Backups, and information about the server.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { About as AboutTold, BackupList } from "../../core/protocol";
import { attempt } from "../app/actions";
import { api } from "../app/store";
import { settingsText } from "../text/settings";

const MEGABYTE = 1_000_000;

/** Download a file with the page's own key, and save it. */
async function download(name: string): Promise<void> {
  const address = URL.createObjectURL(await api.getBlob(`api/backups/${name}`));
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export function BackupSettings() {
  const backups = useSignal<BackupList["backups"]>([]);
  const busy = useSignal(false);
  const load = () => attempt(async () => (backups.value = (await api.get<BackupList>("api/backups")).backups));
  useEffect(() => void load(), []);
  const createBackup = async () => {
    busy.value = true;
    await attempt(() => api.post("api/backup"));
    await load();
    busy.value = false;
  };
  return (
    <section aria-labelledby="set-backups">
      <h3 id="set-backups">{settingsText.backups}</h3>
      <p class="buttons"><button type="button" disabled={busy.value} onClick={() => void createBackup()}>{busy.value ? settingsText.backingUp : settingsText.backUp}</button></p>
      <ul>
        {backups.value.map((each) => (
          <li key={each.name} class="buttons"><span>{each.name}</span> <span class="note quiet">{(each.size_bytes / MEGABYTE).toFixed(1)} MB</span><span class="spacer" />
            <button type="button" onClick={() => void attempt(() => download(each.name))} aria-label={`${settingsText.download} ${each.name}`}>{settingsText.download}</button></li>
        ))}
      </ul>
      {backups.value[0] && <p class="note quiet">{settingsText.restoreHelp} <code>{backups.value[0].restore}</code></p>}
    </section>
  );
}

export function AboutServer() {
  const info = useSignal<AboutTold | null>(null);
  useEffect(() => void attempt(async () => (info.value = await api.get<AboutTold>("api/about"))), []);
  const about = info.value;
  return (
    <section aria-labelledby="set-about">
      <h3 id="set-about">{settingsText.about}</h3>
      {about && (
        <dl class="facts">
          <div><dt>{settingsText.versionName}</dt><dd>{settingsText.version(about.version)}</dd></div>
          <div><dt>{settingsText.dataFolder}</dt><dd><code>{about.data}</code> <span class="note quiet">{(about.store_bytes / MEGABYTE).toFixed(1)} MB</span></dd></div>
          <div><dt>{settingsText.sandbox}</dt><dd>{settingsText.sandboxState(about.confinement)}</dd></div>
          <div><dt>{settingsText.unprotected}</dt><dd>{about.unprotected.length ? about.unprotected.map((each) => <p key={each} class="note">{each}</p>) : settingsText.allProtected}</dd></div>
        </dl>
      )}
    </section>
  );
}
