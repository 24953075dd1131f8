// The editor of an agent's file. The server checks the file when it is saved, and refuses to overwrite newer changes.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { AgentText, AgentInfo } from "../../core/protocol";
import { errorLine, lineRange } from "../../core/toml_position";
import { api, showQuestion, me, showNotice } from "../app/store";
import { s } from "../text/index";
import { agentPath, drafts, refreshAgents, NO_FILE, readAgentFile, ifMatchHeaders, errorTextOf, type AgentFile } from "./store";
import { goTo } from "../app/navigation";

export function AgentEditor({ name, agent, tools }: { name: string; agent: AgentInfo | undefined; tools: readonly string[] }) {
  const baseFile = useSignal<AgentFile | null>(drafts.get(name)?.base ?? null);
  const text = useSignal(drafts.get(name)?.text ?? "");
  const serverFile = useSignal<AgentFile | null>(null);
  const errorText = useSignal("");
  const busy = useSignal(false);
  const textarea = useRef<HTMLTextAreaElement>(null);
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  const isChanged = baseFile.value !== null && text.value !== baseFile.value.text;

  const replaceWith = (file: AgentFile) => {
    baseFile.value = file;
    text.value = file.text;
    serverFile.value = null;
    errorText.value = "";
    drafts.delete(name);
  };
  const edit = (value: string) => {
    text.value = value;
    const base = baseFile.value ?? NO_FILE;
    if (value === base.text) drafts.delete(name);
    else drafts.set(name, { text: value, base });
  };
  const serverDigest = agent?.digest ?? "";
  // Load the file at first, and again after a change on the server, unless there is a draft.
  useEffect(() => {
    if (baseFile.value?.digest === serverDigest || serverFile.value?.digest === serverDigest || busy.value) return;
    void errorTextOf(async () => {
      const found = await readAgentFile(name);
      if (!drafts.has(name)) replaceWith(found);
      else if (baseFile.value?.digest !== found.digest) serverFile.value = found;
    }).then((message) => (errorText.value ||= message));
  }, [serverDigest]);

  const runRequest = async (request: () => Promise<unknown>) => {
    busy.value = true;
    errorText.value = "";
    try {
      await request();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.problem.code === "agent_changed") serverFile.value = await readAgentFile(name).catch(() => null);
      else errorText.value = error.message;
    } finally {
      busy.value = false;
    }
  };
  const save = (baseDigest: string) => runRequest(async () => {
    const { agent: saved, text: written } = await api.put<AgentText>(agentPath(name), { text: text.value }, ifMatchHeaders(baseDigest));
    replaceWith({ text: written, digest: saved.digest });
    showNotice(s.agents.saved);
    await refreshAgents();
  });
  const remove = () => runRequest(async () => {
    await api.delete(agentPath(name), ifMatchHeaders(baseFile.value?.digest ?? ""));
    replaceWith(NO_FILE);
    // Navigate first, because navigation dismisses a notice.
    if (name !== "main") goTo("agents");
    showNotice(s.agents.deleted(name));
    await refreshAgents();
  });
  const line = errorText.value ? errorLine(errorText.value, text.value) : 0;
  const goToLine = () => {
    textarea.current?.focus();
    textarea.current?.setSelectionRange(...lineRange(text.value, line));
  };
  const handleKey = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      if (isAdmin && !busy.value) void save(baseFile.value?.digest ?? "");
    } else if (event.key === "Escape") event.stopPropagation();
  };
  if (!baseFile.value && !errorText.value) return <section><p class="note quiet" role="status">{s.loading}</p></section>;
  const isNew = baseFile.value?.digest === "";
  return (
    <section aria-labelledby="agent-name">
      <h3 id="agent-name"><label for="agent-file">{s.agents.text(name)}</label> {(isChanged || (isNew && text.value)) && <small class="note">{s.agents.unsaved}</small>}</h3>
      {agent?.error && !isChanged && <p class="note wrong">{agent.stays ? s.agents.errorUsesLastValid : agent.answers ? s.agents.errorUsesDefaults : s.agents.errorCannotAnswer} {agent.error}</p>}
      {isNew && !text.value && <p class="note quiet">{agent ? s.agents.noFile : s.agents.noAgent(name)}</p>}
      {serverFile.value && <Conflict serverFile={serverFile.value} takeServerFile={() => serverFile.value && replaceWith(serverFile.value)} saveMine={() => void save(serverFile.value?.digest ?? "")} busy={busy.value} />}
      <textarea ref={textarea} class="file" id="agent-file" aria-invalid={errorText.value ? "true" : undefined} aria-describedby="agent-wrong" rows={Math.min(24, Math.max(8, text.value.split("\n").length + 1))} spellcheck={false} wrap="off" readOnly={!isAdmin} value={text.value}
        onInput={(event) => edit(event.currentTarget.value)} onKeyDown={handleKey} />
      <div id="agent-wrong" role="alert">
        {errorText.value && <p class="note wrong">{errorText.value}</p>}
        {line > 0 && <p><button type="button" class="quiet line" onClick={goToLine}>{s.agents.line(line, text.value.split("\n")[line - 1] ?? "")}</button></p>}
      </div>
      {isAdmin && (
        <p class="buttons">
          <button type="button" class="strong" disabled={busy.value || serverFile.value !== null || !(isChanged || errorText.value || (isNew && text.value))} onClick={() => void save(baseFile.value?.digest ?? "")}>{s.save}</button>
          {isChanged && <button type="button" onClick={() => baseFile.value && replaceWith(baseFile.value)}>{s.agents.undo}</button>}
          <span class="spacer" />
          {!isNew && <button type="button" class="quiet" disabled={busy.value} aria-label={`${s.delete} ${name}`} onClick={() => showQuestion(s.agents.deleteAsks(name), { text: s.delete, run: remove }, { text: s.cancel, run: () => undefined })}>{s.delete}</button>}
        </p>
      )}
      <details>
        <summary>{s.agents.keys}</summary>
        <dl class="facts">
          {s.agents.keyNames.map(([key, what]) => <div key={key}><dt><code>{key}</code></dt><dd>{what}</dd></div>)}
          <div><dt>{s.agents.tools}</dt><dd>{tools.map((each) => <span key={each}><code>{each}</code> </span>)}</dd></div>
        </dl>
      </details>
    </section>
  );
}

function Conflict({ serverFile, takeServerFile, saveMine, busy }: { serverFile: AgentFile; takeServerFile: () => void; saveMine: () => void; busy: boolean }) {
  return (
    <div class="card" role="alert">
      <p>{serverFile.digest ? s.agents.changedTitle : s.agents.deletedTitle}</p>
      {serverFile.digest && <div><p class="note quiet">{s.agents.serverVersion}</p><pre class="command" tabIndex={0}>{serverFile.text}</pre></div>}
      <p class="buttons"><button type="button" onClick={takeServerFile}>{s.agents.takeServerVersion}</button><button type="button" disabled={busy} onClick={saveMine}>{s.agents.saveMine}</button></p>
    </div>
  );
}
