// The entry point of the page.

import { render } from "preact";
import "./style/page.css";
import { App } from "./app/app";
import { connect, markSeen, openSession } from "./app/session_sync";
import { applyTheme } from "./app/theme";
import { signInByLink } from "./app/sign_in";
import { holdVisibleLock } from "./app/notifications";
import { pageAgent, current, isTabHidden, dismissNotice, loading, me, now, page } from "./app/store";
import { closeOverlaysOnBack } from "./app/navigation";

const sessionInHash = () => {
  const name = location.hash.slice(1);
  return /^s_\w+$/.test(name) ? name : null;
};

const root = document.getElementById("page");
/** The hash of the page that is shown. */
let shownHash = "";
/** Handle a new address. It may be a sign-in link. */
async function handleLocation(): Promise<void> {
  shownHash = location.hash;
  const isLink = await signInByLink();
  // Signing in removes the code from the address, so that the same link can be opened again.
  shownHash = location.hash;
  if (isLink || !me.value?.signed_in) await connect();
  if (!me.value?.signed_in) return;
  const [pageName, detail] = location.hash.slice(1).split("/");
  page.value = pageName === "memory" || pageName === "agents" ? pageName : "";
  pageAgent.value = (page.value && detail) || "";
  await openSession(sessionInHash());
}

applyTheme();
if (root) render(<App />, root);
addEventListener("hashchange", (event) => {
  if (event.isTrusted && location.hash === shownHash) return; // `goTo` has already handled it.
  dismissNotice();
  void handleLocation();
});
document.addEventListener("visibilitychange", () => {
  isTabHidden.value = document.hidden;
  // Mark as seen what arrived while the tab was hidden.
  if (current.value && !loading.value) void markSeen(current.value);
});
holdVisibleLock();
closeOverlaysOnBack();
await handleLocation();
setInterval(() => (now.value = Date.now()), 30_000);
