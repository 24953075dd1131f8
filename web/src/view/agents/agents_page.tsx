// The agents: all of them with what is wrong, and the one that is looked at.

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { AgentTold } from "../../core/protocol";
import { about, link, me, model } from "../app/store";
import { s } from "../text/index";
import { drafts, look, NAME, NO_FILE, problem, told } from "./store";
import { Editor } from "./editor";
import { Sent } from "./prompt_preview";
import { goTo } from "../app/navigation";

const LOOK_MS = 4_000;

export function Agents() {
  const box = useRef<HTMLDivElement>(null);
  const isLost = link.value === "lost";
  useEffect(() => {
    box.current?.focus({ preventScroll: true });
    const timer = setInterval(() => void look(), LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => void (isLost || look()), [isLost]);
  const all = told.value;
  const name = about.value || "main";
  const agent = all?.agents.find((each) => each.name === name);
  return (
    <div class="agents" ref={box} tabIndex={-1} role="region" aria-label={s.agents.title}>
      {isLost && <p class="banner" role="status">{s.lost}</p>}
      <p class="note quiet">{s.agents.about}</p>
      {problem.value && !isLost && <p class="note wrong" role="alert">{problem.value}</p>}
      {!all && !problem.value && <p class="note quiet" role="status">{s.loading}</p>}
      {all && <List agents={all.agents} name={name} />}
      {all && all.errors.length > 0 && <section><h3>{s.agents.strays}</h3><ul>{all.errors.map((each) => <li key={each} class="note wrong">{each}</li>)}</ul></section>}
      {all && <Editor key={name} name={name} agent={agent} tools={all.tools} />}
      {agent?.answers && <Sent key={`sent ${name}`} agent={agent} />}
    </div>
  );
}

function List({ agents, name }: { agents: readonly AgentTold[]; name: string }) {
  const isAdmin = me.value?.rights.includes("admin") ?? false;
  return (
    <section>
      <ul class="crew" aria-label={s.agents.list}>
        {agents.map((each) => (
          <li key={each.name} aria-current={each.name === name ? "true" : undefined}>
            <a href={`#agents/${each.name}`}><b>{each.name}</b> <span class="note quiet">{each.model || model.value?.name}</span>
              {each.description && <span>{each.description}</span>}
              {[each.error, ...each.unasked].filter(Boolean).map((wrong) => <span key={wrong} class="note wrong">{wrong}</span>)}</a>
          </li>
        ))}
      </ul>
      {isAdmin && <New agents={agents} />}
    </section>
  );
}

function New({ agents }: { agents: readonly AgentTold[] }) {
  const name = useSignal("");
  const wrong = useSignal("");
  const make = () => {
    const wanted = name.value.trim();
    wrong.value = !NAME.test(wanted) ? s.agents.badName : agents.some((each) => each.name === wanted) ? s.agents.exists(wanted) : "";
    if (wrong.value) return;
    if (!drafts.has(wanted)) drafts.set(wanted, { text: s.agents.first(wanted), base: NO_FILE });
    name.value = "";
    goTo(`agents/${wanted}`);
  };
  return (
    <form class="buttons" onSubmit={(event) => (event.preventDefault(), make())}>
      <label>{s.agents.new} <input value={name.value} maxLength={40} autocomplete="off" spellcheck={false} placeholder={s.agents.name} onInput={(event) => { name.value = event.currentTarget.value; wrong.value = ""; }} /></label>
      <button type="submit" disabled={!name.value.trim()}>{s.agents.make}</button>
      <span role="status" class={wrong.value ? "note wrong" : "note quiet"}>{wrong.value || s.agents.nameHelp}</span>
    </form>
  );
}
