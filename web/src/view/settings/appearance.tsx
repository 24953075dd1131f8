// Theme and notifications, stored in this browser alone.

import { useSignal } from "@preact/signals";
import { setTheme, storedTheme } from "../app/theme";
import { requestNotifications, areNotificationsEnabled } from "../app/notifications";
import { showNotice } from "../app/store";
import { settingsText } from "../text/settings";

type Theme = keyof typeof settingsText.themes;

export function AppearanceSettings() {
  const theme = useSignal(storedTheme() as Theme);
  const notifications = useSignal(areNotificationsEnabled());
  const changeNotifications = async (checkbox: HTMLInputElement) => {
    const isRequested = checkbox.checked;
    notifications.value = checkbox.checked = await requestNotifications(isRequested);
    if (isRequested && !notifications.value) showNotice(settingsText.noticesRefused);
  };
  const changeTheme = (chosen: Theme) => {
    theme.value = chosen;
    setTheme(chosen);
  };
  return (
    <section aria-labelledby="set-looks">
      <h3 id="set-looks">{settingsText.appearance}</h3>
      <label>{settingsText.theme}{" "}
        <select value={theme.value} onChange={(event) => changeTheme(event.currentTarget.value as Theme)}>
          {(Object.keys(settingsText.themes) as Theme[]).map((each) => <option key={each} value={each}>{settingsText.themes[each]}</option>)}
        </select>
      </label>
      <label class="check"><input type="checkbox" checked={notifications.value} onChange={(event) => void changeNotifications(event.currentTarget)} /> {settingsText.notices}</label>
    </section>
  );
}
