// An agent's file: as it is written, checked by the server when it is saved, and never over somebody else's change.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Refused } from "../../core/api";
import type { AgentText, AgentTold } from "../../core/protocol";
import { lineOf, rangeOf } from "../../core/toml_position";
import { api, ask, me, say } from "../app/store";
import { s } from "../text/index";
import { at, drafts, look, NO_FILE, read, unchanged, wrongWith, type Kept } from "./store";
import { goTo } from "../app/navigation";

export function Editor({ name, agent, tools }: { name: string; agent: AgentTold | undefined; tools: readonly string[] }) {
  const kept = useSignal<Kept | null>(drafts.get(name)?.base ?? null);
  const text = useSignal(drafts.get(name)?.text ?? "");
  const theirs = useSignal<Kept | null>(null);
  const wrong = useSignal("");
  const busy = useSignal(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  const isChanged = kept.value !== null && text.value !== kept.value.text;

  const take = (found: Kept) => {
    kept.value = found;
    text.value = found.text;
    theirs.value = null;
    wrong.value = "";
    drafts.delete(name);
  };
  const write = (value: string) => {
    text.value = value;
    const base = kept.value ?? NO_FILE;
    if (value === base.text) drafts.delete(name);
    else drafts.set(name, { text: value, base });
  };
  const digest = agent?.digest ?? "";
  // What is read first, and what others write meanwhile: whoever has written nothing here just sees it.
  useEffect(() => {
    if (kept.value?.digest === digest || theirs.value?.digest === digest || busy.value) return;
    void wrongWith(async () => {
      const found = await read(name);
      if (!drafts.has(name)) take(found);
      else if (kept.value?.digest !== found.digest) theirs.value = found;
    }).then((said) => (wrong.value ||= said));
  }, [digest]);

  const work = async (what: () => Promise<unknown>) => {
    busy.value = true;
    wrong.value = "";
    try {
      await what();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.problem.code === "agent_changed") theirs.value = await read(name).catch(() => null);
      else wrong.value = error.message;
    } finally {
      busy.value = false;
    }
  };
  const save = (over: string) => work(async () => {
    const { agent: saved, text: written } = await api.put<AgentText>(at(name), { text: text.value }, unchanged(over));
    take({ text: written, digest: saved.digest });
    say(s.agents.saved);
    await look();
  });
  const remove = () => work(async () => {
    await api.delete(at(name), unchanged(kept.value?.digest ?? ""));
    take(NO_FILE);
    // First, since going elsewhere takes a notice away.
    if (name !== "main") goTo("agents");
    say(s.agents.deleted(name));
    await look();
  });
  const line = wrong.value ? lineOf(wrong.value, text.value) : 0;
  const goToLine = () => {
    area.current?.focus();
    area.current?.setSelectionRange(...rangeOf(text.value, line));
  };
  const press = (event: KeyboardEvent) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "s") {
      event.preventDefault();
      if (isAdmin && !busy.value) void save(kept.value?.digest ?? "");
    } else if (event.key === "Escape") event.stopPropagation();
  };
  if (!kept.value && !wrong.value) return <section><p class="note quiet" role="status">{s.loading}</p></section>;
  const isNew = kept.value?.digest === "";
  return (
    <section aria-labelledby="agent-name">
      <h3 id="agent-name"><label for="agent-file">{s.agents.text(name)}</label> {(isChanged || (isNew && text.value)) && <small class="note">{s.agents.unsaved}</small>}</h3>
      {agent?.error && !isChanged && <p class="note wrong">{agent.stays ? s.agents.wrongStays : agent.answers ? s.agents.wrongNow : s.agents.wrongAlways} {agent.error}</p>}
      {isNew && !text.value && <p class="note quiet">{agent ? s.agents.noFile : s.agents.noAgent(name)}</p>}
      {theirs.value && <Conflict theirs={theirs.value} take={() => theirs.value && take(theirs.value)} save={() => void save(theirs.value?.digest ?? "")} busy={busy.value} />}
      <textarea ref={area} class="file" id="agent-file" aria-invalid={wrong.value ? "true" : undefined} aria-describedby="agent-wrong" rows={Math.min(24, Math.max(8, text.value.split("\n").length + 1))} spellcheck={false} wrap="off" readOnly={!isAdmin} value={text.value}
        onInput={(event) => write(event.currentTarget.value)} onKeyDown={press} />
      <div id="agent-wrong" role="alert">
        {wrong.value && <p class="note wrong">{wrong.value}</p>}
        {line > 0 && <p><button type="button" class="quiet line" onClick={goToLine}>{s.agents.line(line, text.value.split("\n")[line - 1] ?? "")}</button></p>}
      </div>
      {isAdmin && (
        <p class="buttons">
          <button type="button" class="strong" disabled={busy.value || theirs.value !== null || !(isChanged || wrong.value || (isNew && text.value))} onClick={() => void save(kept.value?.digest ?? "")}>{s.save}</button>
          {isChanged && <button type="button" onClick={() => kept.value && take(kept.value)}>{s.agents.undo}</button>}
          <span class="spread" />
          {!isNew && <button type="button" class="quiet" disabled={busy.value} aria-label={`${s.delete} ${name}`} onClick={() => ask(s.agents.deleteAsks(name), { text: s.delete, run: remove }, { text: s.cancel, run: () => undefined })}>{s.delete}</button>}
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

function Conflict({ theirs, take, save, busy }: { theirs: Kept; take: () => void; save: () => void; busy: boolean }) {
  return (
    <div class="card" role="alert">
      <p>{theirs.digest ? s.agents.changedTitle : s.agents.goneTitle}</p>
      {theirs.digest && <div><p class="note quiet">{s.agents.theirs}</p><pre class="command" tabIndex={0}>{theirs.text}</pre></div>}
      <p class="buttons"><button type="button" onClick={take}>{s.agents.takeTheirs}</button><button type="button" disabled={busy} onClick={save}>{s.agents.saveMine}</button></p>
    </div>
  );
}
