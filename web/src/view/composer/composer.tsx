// The composer: text, files and slash commands, and what to do during a run. A draft is stored for each
// session.

import { computed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../../core/transcript_types";
import type { IfBusy } from "../../core/outbox";
import { actions, slashCommands } from "../app/actions";
import { textQuestion } from "../approvals/approval";
import { attachments, AttachButton, DropZone, FileList, AutoSendNotice } from "./uploads";
import { AgentModelButton } from "./agent_model_button";
import { parseCommand, CommandMenu, completions, isPrompt } from "./slash_commands";
import { prompts } from "./agent_model";
import { draftText, useDraft } from "./draft";
import { startedSession, send } from "../app/session_sync";
import { UsageMeter } from "./usage_meter";
import { current, connectionStatus, notice, active, page, showNotice, tick } from "../app/store";
import { s } from "../text/index";

function hasRunIn(...statuses: string[]): boolean {
  void tick.value;
  return [...active.conversation.runs.values()].some((run) => statuses.includes(run.status));
}

// Computed, so that the composer is not rendered again with every word of an answer.
const isBusy = computed(() => hasRunIn("accepted", "running"));
const isWaiting = computed(() => hasRunIn("waiting"));
const hasOpenQuestion = computed(() => (void tick.value, [...active.conversation.runs.values()].some((run) => run.waiting === "question")));

function earlierMessages(): string[] {
  const turns = active.conversation.orderedTurns().filter((turn) => turn.live);
  return turns.map((turn) => turn.entries.find((entry) => entry.role === "user")).flatMap((entry) => (entry ? [entry.parts.map((part) => (part.type === "text" ? part.text : "")).join("")] : []));
}

export function Composer() {
  const historyIndex = useSignal(0);
  const selectedCommand = useSignal(-1);
  const isSubmitting = useRef(false);
  /** The prompt being looked up, and the snapshot of the composer to send once it is found. */
  const promptLookup = useSignal<readonly [name: string, sent: string] | null>(null);
  /** The keys of rejected files that the user has seen a notice about. */
  const reportedFiles = useRef("");
  const textarea = useRef<HTMLTextAreaElement>(null);
  const id = current.value;
  const continuesDraft = useContinuesDraft(id);
  useDraft(id, continuesDraft);

  useEffect(() => {
    textarea.current?.focus();
    historyIndex.value = 0;
  }, [id]);
  useLayoutEffect(() => {
    if (continuesDraft) attachments.moveToNewSession();
    attachments.leaveSession(id);
  }, [id]);
  useLayoutEffect(() => () => attachments.leaveSession(null), []);
  useEffect(() => {
    const node = textarea.current;
    if (!node) return;
    node.style.height = "auto";
    // Include the borders: without them the textarea would scroll by their width.
    node.style.height = `${Math.min(node.scrollHeight + node.offsetHeight - node.clientHeight, innerHeight * 0.4)}px`;
  }, [draftText.value, id]);

  // An answer has no files: with files, the text is sent as a message.
  const hasFiles = attachments.uploads.value.some((each) => !each.error);
  const openQuestion = hasFiles ? null : textQuestion.value;
  const label = openQuestion ? s.answerHere : s.compose;
  const submit = (if_busy: IfBusy) => {
    const message = draftText.value.trim();
    if (attachments.isBlocked() || (!message && !hasFiles) || reportRejectedFiles()) return;
    if (attachments.isUploading()) return attachments.sendWhenUploaded(if_busy);
    const command = parseCommand(message);
    if (openQuestion && !(command && slashCommands[command.name])) return void answer(openQuestion, message);
    if (command && !prompts.value.some((each) => each.name === command.name)) {
      const run = slashCommands[command.name];
      if (!run) return void sendIfPrompt(command.name, message, if_busy);
      run(command.rest);
      // A command takes no files: they stay for the next message.
      return clearText();
    }
    if (notice.value?.text === s.undone) notice.value = null; // Undo would remove what is sent now.
    void send(message, if_busy, attachments.stored());
    clearAll();
  };

  // Cancel automatic sending when the text changes, for example when a draft arrives late.
  useLayoutEffect(() => attachments.leaveSession(null), [draftText.value]);
  const autoSendMode = attachments.autoSendMode();
  useEffect(() => {
    const mode = attachments.autoSendMode();
    if (!mode || attachments.isUploading()) return;
    attachments.cancelAutoSend();
    submit(mode);
  });

  /** Send an answer. The text stays if the server does not accept it. */
  const answer = async ({ run_id, id: call }: Entry, answerText: string) => {
    if (isSubmitting.current) return;
    isSubmitting.current = true;
    const [before] = snapshot();
    const isAccepted = await actions.answer(run_id ?? "", call, { decision: "answer", text: answerText });
    isSubmitting.current = false;
    if (isAccepted && snapshot()[0] === before) clearText();
  };

  const clearText = () => {
    draftText.value = "";
    historyIndex.value = 0;
    selectedCommand.value = -1;
  };

  const clearAll = () => {
    clearText();
    attachments.clear();
  };

  /** Set the text and cancel automatic sending at once: the next key may be Enter. */
  const setText = (value: string) => {
    attachments.cancelAutoSend();
    draftText.value = value;
  };

  /** Show which files were rejected, once, and return whether any were new. A second send goes without them. */
  const reportRejectedFiles = (): boolean => {
    const rejected = attachments.uploads.value.filter((each) => each.error);
    const keys = rejected.map((each) => each.key).join();
    if (keys === reportedFiles.current) return false;
    reportedFiles.current = keys;
    if (rejected.length) showNotice(s.notTaken(rejected.map((each) => each.name)));
    return rejected.length > 0;
  };

  /** Send a message that may call a prompt unknown to this page, if the server has that prompt. */
  const sendIfPrompt = async (name: string, message: string, if_busy: IfBusy) => {
    if (isSubmitting.current) return;
    isSubmitting.current = true;
    const before = snapshot().join();
    promptLookup.value = [name, before];
    const isFound = await isPrompt(name);
    isSubmitting.current = false;
    promptLookup.value = null;
    if (snapshot().join() !== before) return showNotice(s.notSentChanged);
    if (!isFound) return showNotice(isFound === null ? s.cannotLookUp(name) : s.unknownCommand(name));
    if (notice.value?.text === s.undone) notice.value = null; // Undo would remove what is sent now.
    void send(message, if_busy, attachments.stored());
    clearAll();
  };

  const complete = (name: string) => {
    setText(`/${name} `);
    selectedCommand.value = -1;
    textarea.current?.focus();
  };

  /** Handle a key of the command menu. Return whether it was one. */
  const handleCommandKey = (event: KeyboardEvent): boolean => {
    const matches = historyIndex.value ? [] : completions(draftText.value);
    if (!matches.length) return false;
    const name = matches[selectedCommand.value]?.name;
    if (event.key === "ArrowDown") selectedCommand.value = (selectedCommand.value + 1) % matches.length;
    else if (event.key === "ArrowUp") selectedCommand.value = selectedCommand.value > 0 ? selectedCommand.value - 1 : matches.length - 1;
    else if (event.key === "Enter" && name) complete(name);
    else if (event.key === "Tab" && !event.shiftKey && matches[0]) complete(name ?? matches[0].name);
    else return false;
    return true;
  };

  const handleKey = (event: KeyboardEvent) => {
    if (handleCommandKey(event)) return event.preventDefault();
    if (event.key === "Escape" && autoSendMode) {
      attachments.cancelAutoSend();
      return event.stopPropagation();
    }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      return submit(event.altKey ? "steer" : "queue");
    }
    const history = earlierMessages();
    if (event.key === "ArrowUp" && (draftText.value === "" || historyIndex.value > 0) && historyIndex.value < history.length) {
      event.preventDefault();
      historyIndex.value += 1;
      setText(history.at(-historyIndex.value) ?? "");
    } else if (event.key === "ArrowDown" && historyIndex.value > 0) {
      event.preventDefault();
      historyIndex.value -= 1;
      setText(historyIndex.value ? (history.at(-historyIndex.value) ?? "") : "");
    }
  };

  const isBusyNow = isBusy.value;
  const hasMessage = draftText.value.trim() !== "" || hasFiles;
  const isWaitingNow = isWaiting.value;
  const lookedUpPrompt = promptLookup.value?.[1] === snapshot().join() ? promptLookup.value[0] : "";
  const isSendDisabled = attachments.isBlocked() || autoSendMode !== null || lookedUpPrompt !== "";
  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), submit("queue"))}>
      <CommandMenu text={draftText.value} selectedIndex={selectedCommand.value} choose={complete} />
      <DropZone />
      <FileList send={() => submit("queue")} />
      <textarea ref={textarea} rows={1} placeholder={label} aria-label={label} value={draftText.value}
        aria-activedescendant={selectedCommand.value >= 0 ? `command-${selectedCommand.value}` : undefined}
        onInput={(event) => { setText(event.currentTarget.value); selectedCommand.value = -1; }} onKeyDown={handleKey}
        onPaste={(event) => { const files = [...(event.clipboardData?.files ?? [])]; if (files.length) { event.preventDefault(); attachments.add(files); } }} />
      {isWaitingNow && hasMessage && <p class="note" role="status">{openQuestion ? s.answersAbove : hasOpenQuestion.value ? s.leavesUnanswered : s.refusesFirst}</p>}
      {lookedUpPrompt && <p class="note quiet" role="status">{s.lookingUp(lookedUpPrompt)}</p>}
      <AutoSendNotice />
      <p class="buttons">
        <AttachButton />
        <AgentModelButton />
        <UsageMeter />
        <span class="spacer" />
        {isBusyNow && hasMessage && <button type="button" class="quiet" disabled={isSendDisabled} onClick={() => submit("steer")}>{s.steerNow}</button>}
        {isBusyNow && hasMessage && <button type="button" class="quiet" disabled={isSendDisabled} onClick={() => submit("interrupt")}>{s.stopAndSend}</button>}
        {(isBusyNow || isWaitingNow) && <button type="button" class="stop" disabled={connectionStatus.value === "lost"} onClick={() => void actions.stop()}>{s.stop}</button>}
        {(!isBusyNow || hasMessage) && <button type="submit" class="strong" disabled={isSendDisabled}>{openQuestion ? s.answerIt : isBusyNow ? s.sendAfter : s.send}</button>}
      </p>
    </form>
  );
}

/** Return a snapshot to compare after an await: the place with its text, and the files. */
function snapshot(): [words: string, files: string] {
  return [JSON.stringify([page.value, current.value, draftText.value]), JSON.stringify(attachments.uploads.value)];
}

/** Return whether the user keeps typing in the session that their first message has just created. */
function useContinuesDraft(id: string | null): boolean {
  const before = useRef(id);
  const continuesDraft = before.current === null && id !== null && startedSession() === id;
  useEffect(() => void (before.current = id), [id]);
  return continuesDraft;
}
