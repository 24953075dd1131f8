// The settings dialog.

import { useEffect, useRef } from "preact/hooks";
import { actions } from "../app/actions";
import { Dialog } from "../shared/dialog";
import { me } from "../app/store";
import { s } from "../text/index";
import { settingsText } from "../text/settings";
import { AboutServer, BackupSettings } from "./backups";
import { ChannelSettings } from "./channels";
import { AppearanceSettings } from "./appearance";
import { McpSettings } from "./mcp_servers";
import { ModelSettings } from "./model";
import { PermissionSettings } from "./permissions";
import { AccessSettings } from "./access";

export function Settings() {
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  return (
    <Dialog title={s.settings} wide>
      <div class="settings">
        <SectionLinks ids={isAdmin ? ["model", "may", "mcp", "entry", "channels", "looks", "backups", "about"] : ["may", "mcp", "looks", "about"]} />
        {isAdmin && <ModelSettings />}
        <PermissionSettings />
        <McpSettings />
        {isAdmin && <AccessSettings />}
        {isAdmin && <ChannelSettings />}
        <AppearanceSettings />
        {isAdmin && <BackupSettings />}
        <AboutServer />
        {me.value?.browser && <section><p class="buttons"><button type="button" onClick={() => void actions.signOut()}>{s.signOut}</button></p></section>}
      </div>
    </Dialog>
  );
}

/** Events that mean that the reader looks elsewhere. */
const READER_EVENTS = ["wheel", "touchmove", "pointerdown", "keydown"];
const TITLES = { model: settingsText.model, may: settingsText.permissions, mcp: settingsText.mcp.title, entry: settingsText.access, channels: settingsText.channels, looks: settingsText.appearance, backups: settingsText.backups, about: settingsText.about };

/** Link to each section. Keep the chosen one in view while sections above it load, until the reader moves. */
function SectionLinks({ ids }: { ids: readonly (keyof typeof TITLES)[] }) {
  const links = useRef<HTMLDivElement>(null);
  const target = useRef<HTMLElement | null>(null);
  useEffect(() => {
    const all = links.current?.parentElement;
    const sheet = all?.closest("dialog");
    if (!all || !sheet) return;
    const clearTarget = () => (target.current = null);
    for (const move of READER_EVENTS) sheet.addEventListener(move, clearTarget, { passive: true });
    const observer = new ResizeObserver(() => target.current?.scrollIntoView());
    observer.observe(all);
    return () => {
      observer.disconnect();
      for (const move of READER_EVENTS) sheet.removeEventListener(move, clearTarget);
    };
  }, []);
  const goToSection = (id: string) => {
    const heading = document.getElementById(`set-${id}`);
    target.current = heading?.closest("section") ?? null;
    target.current?.scrollIntoView();
    // Continue keyboard navigation from there.
    heading?.setAttribute("tabindex", "-1");
    heading?.focus({ preventScroll: true });
  };
  return (
    <div class="sections" role="group" aria-label={settingsText.sections} ref={links}>
      {ids.map((id) => <button key={id} type="button" class="quiet" onClick={() => goToSection(id)}>{TITLES[id]}</button>)}
    </div>
  );
}
