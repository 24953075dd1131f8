// The colours that somebody chose for the page. Kept in this browser alone.

const LOOK = "holdfast.look";

export const chosenLook = () => localStorage.getItem(LOOK) ?? "system";

/** Put the chosen colours in force; without a choice the system's hold. */
export function applyLook(): void {
  document.documentElement.dataset["look"] = chosenLook();
}

export function chooseLook(look: string): void {
  localStorage.setItem(LOOK, look);
  applyLook();
}
