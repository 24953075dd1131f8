// Settings: which model answers, what it may do, who may come in and from where, how it looks, what is there.

import { actions } from "../actions";
import { Sheet } from "../sheet";
import { me } from "../state";
import { s } from "../strings";
import { About, Backups } from "./upkeep";
import { Channels } from "./channels";
import { Looks } from "./looks";
import { McpServers } from "./mcp";
import { ModelSection } from "./model";
import { Permissions } from "./permissions";
import { Entry } from "./entry";

export function Settings() {
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  return (
    <Sheet title={s.settings} wide>
      <div class="settings">
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
