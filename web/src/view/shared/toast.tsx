// What is said in passing: by the page, above where one writes, or by what lies over the page and would hide it.

import { notice } from "../app/store";

export function Passing() {
  const said = notice.value;
  return (
    <div class="notice" role="status" aria-live="polite">
      {said && <p>{said.text} {said.acts.map((act) => <button key={act.text} type="button" onClick={() => { notice.value = null; act.run(); }}>{act.text}</button>)}</p>}
    </div>
  );
}
