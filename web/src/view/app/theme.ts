// The colour theme, stored in this browser alone.

const THEME_KEY = "holdfast.look";

export const storedTheme = () => localStorage.getItem(THEME_KEY) ?? "system";

/** Apply the chosen theme; by default, the system's. */
export function applyTheme(): void {
  document.documentElement.dataset["look"] = storedTheme();
}

export function setTheme(theme: string): void {
  localStorage.setItem(THEME_KEY, theme);
  applyTheme();
}
