// The browser's history. Back closes an overlay before it leaves the page: each overlay pushes a history entry,
// and the next navigation replaces that entry.

import { effect } from "@preact/signals";
import { showDetails, isDetailsOpen, wideScreen } from "../details/store";
import { panel } from "./store";

const OVERLAY = "over";

const isOverlayEntry = () => history.state === OVERLAY;
/** Details in a column of their own are no overlay. */
const hasOverlay = () => panel.value !== "" || (isDetailsOpen.value && !wideScreen.matches);

/** Navigate to another page, by the hash of its address. */
export function goTo(hash: string): void {
  if (location.hash.slice(1) === hash) return;
  if (isOverlayEntry()) location.replace(`#${hash}`);
  else location.hash = hash;
  // The browser dispatches the event later; what is typed meanwhile belongs to the new page.
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Follow a link within the page at once: the browser itself would do it after the next key. */
function followLink(event: MouseEvent): void {
  const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>("a[href^='#']") : null;
  // A link in an answer opens a new tab.
  if (!link || link.target || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  goTo(link.getAttribute("href")?.slice(1) ?? "");
}

/** Make Back close overlays from now on. */
export function closeOverlaysOnBack(): void {
  let wasOverlayEntry = isOverlayEntry();
  let lastHash = location.hash;
  const recordEntry = () => {
    wasOverlayEntry = isOverlayEntry();
    lastHash = location.hash;
  };
  const pushOverlayEntry = () => {
    if (hasOverlay() && !isOverlayEntry()) history.pushState(OVERLAY, "");
    recordEntry();
  };
  effect(pushOverlayEntry);
  addEventListener("click", followLink);
  addEventListener("hashchange", pushOverlayEntry);
  addEventListener("popstate", () => {
    const isBackFromOverlay = wasOverlayEntry && !isOverlayEntry() && location.hash === lastHash;
    recordEntry();
    if (!isBackFromOverlay) pushOverlayEntry();
    else if (panel.value) panel.value = "";
    else if (hasOverlay()) showDetails(false);
    // The overlay of that entry was closed before: go back once more.
    else history.back();
  });
}
