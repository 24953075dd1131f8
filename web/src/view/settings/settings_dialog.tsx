// Settings: which model answers, what it may do, who may come in and from where, how it looks, what is there.

import { useEffect, useRef } from "preact/hooks";
import { actions } from "../app/actions";
import { Sheet } from "../shared/dialog";
import { me } from "../app/store";
import { s } from "../text/index";
import { set } from "../text/settings";
import { About, Backups } from "./backups";
import { Channels } from "./channels";
import { Looks } from "./appearance";
import { McpServers } from "./mcp_servers";
import { ModelSection } from "./model";
import { Permissions } from "./permissions";
import { Entry } from "./access";

export function Settings() {
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  return (
    <Sheet title={s.settings} wide>
      <div class="settings">
        <Sections ids={isAdmin ? ["model", "may", "mcp", "entry", "channels", "looks", "backups", "about"] : ["may", "mcp", "looks", "about"]} />
        {isAdmin && <ModelSection />}
        <Permissions />
        <McpServers />
        {isAdmin && <Entry />}
        {isAdmin && <Channels />}
        <Looks />
        {isAdmin && <Backups />}
        <About />
        {me.value?.browser && <section><p class="buttons"><button type="button" onClick={() => void actions.signOut()}>{s.signOut}</button></p></section>}
      </div>
    </Sheet>
  );
}

/** Events by which a reader looks somewhere else. */
const MOVES = ["wheel", "touchmove", "pointerdown", "keydown"];
const TITLES = { model: set.model, may: set.permissions, mcp: set.mcp.title, entry: set.entry, channels: set.channels, looks: set.looks, backups: set.backups, about: set.about };

/** Lead to each section below. What is still loading above it does not push it away, until the reader moves. */
function Sections({ ids }: { ids: readonly (keyof typeof TITLES)[] }) {
  const links = useRef<HTMLDivElement>(null);
  const shown = useRef<HTMLElement | null>(null);
  useEffect(() => {
    const all = links.current?.parentElement;
    const sheet = all?.closest("dialog");
    if (!all || !sheet) return;
    const leave = () => (shown.current = null);
    for (const move of MOVES) sheet.addEventListener(move, leave, { passive: true });
    const observer = new ResizeObserver(() => shown.current?.scrollIntoView());
    observer.observe(all);
    return () => {
      observer.disconnect();
      for (const move of MOVES) sheet.removeEventListener(move, leave);
    };
  }, []);
  const go = (id: string) => {
    const head = document.getElementById(`set-${id}`);
    shown.current = head?.closest("section") ?? null;
    shown.current?.scrollIntoView();
    // From there the keyboard goes on.
    head?.setAttribute("tabindex", "-1");
    head?.focus({ preventScroll: true });
  };
  return (
    <div class="sections" role="group" aria-label={set.sections} ref={links}>
      {ids.map((id) => <button key={id} type="button" class="quiet" onClick={() => go(id)}>{TITLES[id]}</button>)}
    </div>
  );
}
