// Where the page begins.

import { render } from "preact";
import "./style/page.css";
import { App } from "./app/app";
import { begin, seen, show } from "./app/session_sync";
import { applyLook } from "./app/theme";
import { signInByLink } from "./app/sign_in";
import { watchLook } from "./app/notifications";
import { about, current, hidden, leaveNotice, loading, me, now, place } from "./app/store";
import { watchBack } from "./app/navigation";

const opened = () => {
  const name = location.hash.slice(1);
  return /^s_\w+$/.test(name) ? name : null;
};

const root = document.getElementById("page");
/** The address that the page shows. */
let shown = "";
/** A link may come while the page is open: then it signs in, too. */
async function arrive(): Promise<void> {
  shown = location.hash;
  const isLink = await signInByLink();
  // A link is gone from the address by now, and may be opened again.
  shown = location.hash;
  if (isLink || !me.value?.signed_in) await begin();
  if (!me.value?.signed_in) return;
  const [where, what] = location.hash.slice(1).split("/");
  place.value = where === "memory" || where === "agents" ? where : "";
  about.value = (place.value && what) || "";
  await show(opened());
}

applyLook();
if (root) render(<App />, root);
addEventListener("hashchange", (event) => {
  if (event.isTrusted && location.hash === shown) return; // `goTo` has led there already.
  leaveNotice();
  void arrive();
});
document.addEventListener("visibilitychange", () => {
  hidden.value = document.hidden;
  // What was written meanwhile is read now.
  if (current.value && !loading.value) void seen(current.value);
});
watchLook();
watchBack();
await arrive();
setInterval(() => (now.value = Date.now()), 30_000);
