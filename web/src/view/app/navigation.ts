// The way through the page that the browser keeps: Back closes what lies over the page before it leads anywhere. For
// that, whatever is opened gets a step of its own; the next place takes that step's place.

import { effect } from "@preact/signals";
import { beside, isBeside, roomy } from "../details/store";
import { panel } from "./store";

const OVER = "over";

const isStep = () => history.state === OVER;
/** Details that have a column of their own lie over nothing. */
const isCovered = () => panel.value !== "" || (isBeside.value && !roomy.matches);

/** Go to another place of the page, by what follows the # of its address. */
export function goTo(where: string): void {
  if (location.hash.slice(1) === where) return;
  if (isStep()) location.replace(`#${where}`);
  else location.hash = where;
  // The browser tells of it later. What is typed meanwhile belongs to the new place.
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Follow a link within the page at once: the browser itself would do it after the next key. */
function follow(event: MouseEvent): void {
  const link = event.target instanceof Element ? event.target.closest<HTMLAnchorElement>("a[href^='#']") : null;
  // A link in an answer opens a page of its own.
  if (!link || link.target || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  goTo(link.getAttribute("href")?.slice(1) ?? "");
}

/** Have Back close what is open, from now on. */
export function watchBack(): void {
  let wasStep = isStep();
  let where = location.hash;
  const note = () => {
    wasStep = isStep();
    where = location.hash;
  };
  const cover = () => {
    if (isCovered() && !isStep()) history.pushState(OVER, "");
    note();
  };
  effect(cover);
  addEventListener("click", follow);
  addEventListener("hashchange", cover);
  addEventListener("popstate", () => {
    const isBack = wasStep && !isStep() && location.hash === where;
    note();
    if (!isBack) cover();
    else if (panel.value) panel.value = "";
    else if (isCovered()) beside(false);
    // What had that step was closed before: it leads where the one before it does.
    else history.back();
  });
}
