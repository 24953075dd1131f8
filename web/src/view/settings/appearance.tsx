// How the page looks, and whether the browser speaks up. Kept in this browser alone.

import { useSignal } from "@preact/signals";
import { chooseLook, chosenLook } from "../app/theme";
import { askForNotices, wantsNotices } from "../app/notifications";
import { say } from "../app/store";
import { set } from "../text/settings";

type Look = keyof typeof set.looksOf;

export function Looks() {
  const look = useSignal(chosenLook() as Look);
  const notices = useSignal(wantsNotices());
  const ask = async (box: HTMLInputElement) => {
    const isWanted = box.checked;
    notices.value = box.checked = await askForNotices(isWanted);
    if (isWanted && !notices.value) say(set.noticesRefused);
  };
  const choose = (chosen: Look) => {
    look.value = chosen;
    chooseLook(chosen);
  };
  return (
    <section aria-labelledby="set-looks">
      <h3 id="set-looks">{set.looks}</h3>
      <label>{set.look}{" "}
        <select value={look.value} onChange={(event) => choose(event.currentTarget.value as Look)}>
          {(Object.keys(set.looksOf) as Look[]).map((each) => <option key={each} value={each}>{set.looksOf[each]}</option>)}
        </select>
      </label>
      <label class="check"><input type="checkbox" checked={notices.value} onChange={(event) => void ask(event.currentTarget)} /> {set.notices}</label>
    </section>
  );
}
