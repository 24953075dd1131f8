// Settings: which model answers, who may come in, what is always allowed, how it looks, what is there.

import { useSignal } from "@preact/signals";
import { actions } from "./actions";
import { askForNotices, wantsNotices } from "./notify";
import { Sheet } from "./sheet";
import { isDemo, model } from "./state";
import { s } from "./strings";

export function Settings() {
  const notices = useSignal(wantsNotices());
  return (
    <Sheet title={s.settings} wide>
      <section>
        <h3>{s.connectModel}</h3>
        <p>{isDemo.value ? s.demoLabel : model.value?.name}</p>
        <p class="note quiet">{model.value?.why}</p>
      </section>
      <section>
        <label><input type="checkbox" checked={notices.value} onChange={async (event) => (notices.value = await askForNotices(event.currentTarget.checked))} /> {s.needsYou}</label>
      </section>
      <button type="button" onClick={() => void actions.signOut()}>{s.signOut}</button>
    </Sheet>
  );
}
