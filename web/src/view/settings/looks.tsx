// How the page looks, and whether the browser speaks up. Kept in this browser alone.

import { useSignal } from "@preact/signals";
import { askForNotices, wantsNotices } from "../notify";
import { say } from "../state";
import { s } from "../strings";

const LOOK = "holdfast.look";
type Look = keyof typeof s.set.looksOf;

/** Put the chosen colours in force; without a choice the system's hold. */
export function applyLook(look = localStorage.getItem(LOOK) ?? "system"): void {
  document.documentElement.dataset["look"] = look;
}

export function Looks() {
  const look = useSignal((localStorage.getItem(LOOK) ?? "system") as Look);
  const notices = useSignal(wantsNotices());
  const ask = async (box: HTMLInputElement) => {
    const isWanted = box.checked;
    notices.value = box.checked = await askForNotices(isWanted);
    if (isWanted && !notices.value) say(s.set.noticesRefused);
  };
  const choose = (chosen: Look) => {
    look.value = chosen;
    localStorage.setItem(LOOK, chosen);
    applyLook(chosen);
  };
  return (
    <section aria-labelledby="set-looks">
      <h3 id="set-looks">{s.set.looks}</h3>
      <label>{s.set.look}{" "}
        <select value={look.value} onChange={(event) => choose(event.currentTarget.value as Look)}>
          {(Object.keys(s.set.looksOf) as Look[]).map((each) => <option key={each} value={each}>{s.set.looksOf[each]}</option>)}
        </select>
      </label>
      <label class="check"><input type="checkbox" checked={notices.value} onChange={(event) => void ask(event.currentTarget)} /> {s.set.notices}</label>
    </section>
  );
}
