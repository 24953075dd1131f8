// The whole page: the list, the main area, the composer, and overlays.

import { useSignalEffect } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { WaitingCall } from "../approvals/approval";
import { actions } from "./actions";
import { Composer } from "../composer/composer";
import { showDetails, closeDetails, hasDetails, isDetailsOpen } from "../details/store";
import { FindBar, isFindOpen } from "../transcript/find";
import { ListIcon, DetailsIcon, NewIcon } from "../shared/icons";
import { isTyping } from "./focus";
import { SessionSidebar } from "../sessions/session_list";
import { lazyComponent, lazyModules } from "./lazy";
import { ContinuationNotice } from "../transcript/continuation";
import { finished, updateNotifications } from "./notifications";
import { HelpDialog, CommandPalette } from "./command_palette";
import { Toast } from "../shared/toast";
import { MemoryStatusLine } from "../memory/memory_status";
import { SearchDialog } from "../sessions/search";
import { SignIn } from "./sign_in";
import { connectionStatus, loading, me, listedSessions, current, panel, page, session, sessionTitle, openQuestions } from "./store";
import { s } from "../text/index";
import { enableSwipes } from "./swipe_navigation";
import { Transcript } from "../transcript/transcript";
import { goTo } from "./navigation";

const AgentsPage = lazyComponent(async () => (await lazyModules.agents()).AgentsPage);
const Settings = lazyComponent(async () => (await lazyModules.settings()).Settings);
const Inspector = lazyComponent(async () => (await lazyModules.details()).Inspector);
const Output = lazyComponent(async () => (await lazyModules.details()).Output);
const MemoryPage = lazyComponent(async () => (await lazyModules.memory()).MemoryPage, s.memory.failedTitle);

export function App() {
  useEffect(() => {
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  }, []);
  useEffect(enableSwipes, []);
  useSignalEffect(() => {
    const count = openQuestions.value.length + finished.value.size;
    document.title = [count ? `(${count})` : "", pageTitle() || (current.value ? sessionTitle(session.value) : s.name)].filter(Boolean).join(" ");
  });
  useSignalEffect(updateNotifications);
  if (me.value && !me.value.signed_in) return <SignIn />;
  if (!me.value) return <p class="waiting" role="status">{s.connecting}</p>;
  return (
    <div class="page" data-panel={panel.value} data-beside={isDetailsOpen.value || undefined}>
      <SessionSidebar />
      {(panel.value === "list" || isDetailsOpen.value) && <button type="button" class="backdrop" aria-label={s.close} onClick={() => (panel.value ? (panel.value = "") : showDetails(false))} />}
      <main>
        <header>
          <button type="button" class="quiet list-toggle" aria-label={s.conversations} onClick={() => (panel.value = panel.value === "list" ? "" : "list")}><ListIcon /></button>
          {page.value ? <h2>{pageTitle()}</h2> : current.value && <div class="title-bar"><h2>{sessionTitle(session.value)}</h2><MemoryStatusLine /></div>}
          <span class="spacer" />
          {(current.value || page.value) && <a class="button quiet new-session" href="#" aria-label={s.newConversation} title={s.newConversation}><NewIcon /></a>}
          {hasDetails.value && <button type="button" class="quiet" aria-label={s.details.title} title={s.details.toggle} aria-expanded={isDetailsOpen.value} onClick={() => showDetails(!isDetailsOpen.value)}><DetailsIcon /></button>}
        </header>
        {page.value === "memory" ? <MemoryPage /> : page.value === "agents" ? <AgentsPage /> : <ConversationArea />}
        {(!panel.value || panel.value === "list") && <Toast />}
        {!page.value && <ComposerArea />}
      </main>
      {isDetailsOpen.value && <Inspector />}
      {panel.value === "settings" && <Settings />}
      {panel.value === "search" && <SearchDialog />}
      {panel.value === "palette" && <CommandPalette />}
      {panel.value === "keyboard" && <HelpDialog />}
      {panel.value === "output" && <Output />}
    </div>
  );
}

function pageTitle(): string {
  return page.value ? s[page.value].title : "";
}

function ConversationArea() {
  return (
    <>
      {isFindOpen.value && <FindBar />}
      <Transcript />
    </>
  );
}

/** Waiting calls and the composer: no overlay covers them. */
function ComposerArea() {
  return (
    <>
      {connectionStatus.value === "lost" && <p class="banner" role="status">{s.disconnected}</p>}
      {loading.value !== "gone" && <WaitingCall />}
      {loading.value !== "gone" && <ContinuationNotice />}
      {loading.value !== "gone" && <Composer />}
    </>
  );
}

function handleKey(event: KeyboardEvent): void {
  const control = event.ctrlKey || event.metaKey;
  const plain = !control && !event.altKey;
  if (control && event.key === "k") panel.value = panel.value === "palette" ? "" : "palette";
  else if (control && event.key === "f" && current.value) isFindOpen.value = true;
  else if (control && event.key === "b") document.body.classList.toggle("no-list");
  else if (control && event.key === "i" && hasDetails.value) showDetails(!isDetailsOpen.value);
  else if (event.altKey && event.key === "n") goTo("");
  else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) openNeighbor(event.key === "ArrowUp" ? -1 : 1);
  else if (event.key === "Escape") return handleEscape(event);
  else if (plain && event.key === "?" && !isTyping(event.target)) panel.value = "keyboard";
  else return;
  event.preventDefault();
}

function openNeighbor(by: number): void {
  const at = listedSessions.value.findIndex((row) => row.id === current.value);
  const next = listedSessions.value[Math.max(0, at + by)];
  if (next) goTo(next.id);
}

function handleEscape(event: KeyboardEvent): void {
  if (panel.value) panel.value = "";
  else if (isFindOpen.value) isFindOpen.value = false;
  else if (closeDetails(event.target)) return;
  else if (!isTyping(event.target) || (event.target as HTMLTextAreaElement).value === "") void actions.stopUnlessWaiting();
}
