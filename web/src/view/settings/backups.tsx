// Copies to go back to, and what is there.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { About as AboutTold, BackupList } from "../../core/protocol";
import { attempt } from "../app/actions";
import { api } from "../app/store";
import { set } from "../text/settings";

const MEGABYTE = 1_000_000;

/** Fetched by the page, which shows who it is, and handed to the browser to keep. */
async function download(name: string): Promise<void> {
  const address = URL.createObjectURL(await api.fetched(`api/backups/${name}`));
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

export function Backups() {
  const found = useSignal<BackupList["backups"]>([]);
  const busy = useSignal(false);
  const load = () => attempt(async () => (found.value = (await api.get<BackupList>("api/backups")).backups));
  useEffect(() => void load(), []);
  const make = async () => {
    busy.value = true;
    await attempt(() => api.post("api/backup"));
    await load();
    busy.value = false;
  };
  return (
    <section aria-labelledby="set-backups">
      <h3 id="set-backups">{set.backups}</h3>
      <p class="buttons"><button type="button" disabled={busy.value} onClick={() => void make()}>{busy.value ? set.backingUp : set.backUp}</button></p>
      <ul>
        {found.value.map((each) => (
          <li key={each.name} class="buttons"><span>{each.name}</span> <span class="note quiet">{(each.size_bytes / MEGABYTE).toFixed(1)} MB</span><span class="spread" />
            <button type="button" onClick={() => void attempt(() => download(each.name))} aria-label={`${set.download} ${each.name}`}>{set.download}</button></li>
        ))}
      </ul>
      {found.value[0] && <p class="note quiet">{set.restoreHelp} <code>{found.value[0].restore}</code></p>}
    </section>
  );
}

export function About() {
  const told = useSignal<AboutTold | null>(null);
  useEffect(() => void attempt(async () => (told.value = await api.get<AboutTold>("api/about"))), []);
  const about = told.value;
  return (
    <section aria-labelledby="set-about">
      <h3 id="set-about">{set.about}</h3>
      {about && (
        <dl class="facts">
          <div><dt>{set.versionName}</dt><dd>{set.version(about.version)}</dd></div>
          <div><dt>{set.dataFolder}</dt><dd><code>{about.data}</code> <span class="note quiet">{(about.store_bytes / MEGABYTE).toFixed(1)} MB</span></dd></div>
          <div><dt>{set.confinement}</dt><dd>{set.confined(about.confinement)}</dd></div>
          <div><dt>{set.unprotected}</dt><dd>{about.unprotected.length ? about.unprotected.map((each) => <p key={each} class="note">{each}</p>) : set.allProtected}</dd></div>
        </dl>
      )}
    </section>
  );
}
