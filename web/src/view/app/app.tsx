// The whole page: the list, the conversation, what is asked, where one writes, and what lies over them.

import { useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Asking } from "../approvals/approval";
import { actions } from "./actions";
import { Composer } from "../composer/composer";
import { beside, closeBeside, hasDetails, isBeside } from "../details/store";
import { Find, findIsOpen } from "../transcript/find";
import { Bars, Columns, Pen } from "../shared/icons";
import { isTyping } from "./focus";
import { List } from "../sessions/session_list";
import { lazily, modules } from "./lazy";
import { GoesOn } from "../transcript/continuation";
import { finished, notify } from "./notifications";
import { Keyboard, Palette } from "./command_palette";
import { Passing } from "../shared/toast";
import { Remembered } from "../memory/memory_status";
import { Search } from "../sessions/search";
import { SignIn } from "./sign_in";
import { link, loading, me, ordered, current, panel, place, session, titleOf, waiting } from "./store";
import { s } from "../text/index";
import { swiping } from "./swipe_navigation";
import { Transcript } from "../transcript/transcript";
import { goTo } from "./navigation";

const AgentsPage = lazily(async () => (await modules.agents()).Agents);
const Settings = lazily(async () => (await modules.settings()).Settings);
const Inspector = lazily(async () => (await modules.details()).Inspector);
const Output = lazily(async () => (await modules.details()).Output);
const MemoryPage = lazily(async () => (await modules.memory()).Memory, s.memory.failedTitle);

export function App() {
  useEffect(() => {
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  useEffect(swiping, []);
  useSignalEffect(() => {
    const many = waiting.value.length + finished.value.size;
    document.title = [many ? `(${many})` : "", placeTitle() || (current.value ? titleOf(session.value) : s.name)].filter(Boolean).join(" ");
  });
  useSignalEffect(notify);
  if (me.value && !me.value.signed_in) return <SignIn />;
  if (!me.value) return <p class="waiting" role="status">{s.connecting}</p>;
  return (
    <div class="page" data-panel={panel.value} data-beside={isBeside.value || undefined}>
      <List />
      {(panel.value === "list" || isBeside.value) && <button type="button" class="beside" aria-label={s.close} onClick={() => (panel.value ? (panel.value = "") : beside(false))} />}
      <main>
        <header>
          <button type="button" class="quiet burger" aria-label={s.conversations} onClick={() => (panel.value = panel.value === "list" ? "" : "list")}><Bars /></button>
          {place.value ? <h2>{placeTitle()}</h2> : current.value && <div class="named"><h2>{titleOf(session.value)}</h2><Remembered /></div>}
          <span class="spread" />
          {(current.value || place.value) && <a class="button quiet begin" href="#" aria-label={s.newConversation} title={s.newConversation}><Pen /></a>}
          {hasDetails.value && <button type="button" class="quiet" aria-label={s.details.title} title={s.details.toggle} aria-expanded={isBeside.value} onClick={() => beside(!isBeside.value)}><Columns /></button>}
        </header>
        {place.value === "memory" ? <MemoryPage /> : place.value === "agents" ? <AgentsPage /> : <Above />}
        {(!panel.value || panel.value === "list") && <Passing />}
        {!place.value && <Dock />}
      </main>
      {isBeside.value && <Inspector />}
      {panel.value === "settings" && <Settings />}
      {panel.value === "search" && <Search />}
      {panel.value === "palette" && <Palette />}
      {panel.value === "keyboard" && <Keyboard />}
      {panel.value === "output" && <Output />}
    </div>
  );
}

function placeTitle(): string {
  return place.value ? s[place.value].title : "";
}

function Above() {
  return (
    <>
      {findIsOpen.value && <Find />}
      <Transcript />
    </>
  );
}

/** What is asked and where one writes: nothing lies over it. */
function Dock() {
  return (
    <>
      {link.value === "lost" && <p class="banner" role="status">{s.lost}</p>}
      {loading.value !== "gone" && <Asking />}
      {loading.value !== "gone" && <GoesOn />}
      {loading.value !== "gone" && <Composer />}
    </>
  );
}

function press(event: KeyboardEvent): void {
  const control = event.ctrlKey || event.metaKey;
  const plain = !control && !event.altKey;
  if (control && event.key === "k") panel.value = panel.value === "palette" ? "" : "palette";
  else if (control && event.key === "f" && current.value) findIsOpen.value = true;
  else if (control && event.key === "b") document.body.classList.toggle("no-list");
  else if (control && event.key === "i" && hasDetails.value) beside(!isBeside.value);
  else if (event.altKey && event.key === "n") goTo("");
  else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) step(event.key === "ArrowUp" ? -1 : 1);
  else if (event.key === "Escape") return escape(event);
  else if (plain && event.key === "?" && !isTyping(event.target)) panel.value = "keyboard";
  else return;
  event.preventDefault();
}

function step(by: number): void {
  const at = ordered.value.findIndex((row) => row.id === current.value);
  const next = ordered.value[Math.max(0, at + by)];
  if (next) goTo(next.id);
}

function escape(event: KeyboardEvent): void {
  if (panel.value) panel.value = "";
  else if (findIsOpen.value) findIsOpen.value = false;
  else if (closeBeside(event.target)) return;
  else if (!isTyping(event.target) || (event.target as HTMLTextAreaElement).value === "") void actions.stopWork();
}
