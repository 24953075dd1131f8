// Show a short notice: above the composer, or in the dialog that covers it.

import { notice } from "../app/store";

export function Toast() {
  const shown = notice.value;
  return (
    <div class="notice" role="status" aria-live="polite">
      {shown && <p>{shown.text} {shown.acts.map((act) => <button key={act.text} type="button" onClick={() => { notice.value = null; act.run(); }}>{act.text}</button>)}</p>}
    </div>
  );
}
