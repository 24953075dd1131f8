// The button in the composer that shows the agent and the model, and opens the menu to change them.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { currentAgent, agents, currentChoice, currentModel } from "./agent_model";
import { lazyComponent, lazyModules } from "../app/lazy";
import { s } from "../text/index";

const Choices = lazyComponent(async () => (await lazyModules.settings()).Choices);

const isOpen = signal(false);

/** Open the menu from elsewhere. */
export function openAgentModelMenu(): void {
  isOpen.value = true;
}

export function AgentModelButton() {
  const container = useRef<HTMLSpanElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const dialog = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!isOpen.value) return;
    // The form may still be loading: focus the dialog at once, so that Escape closes it.
    dialog.current?.focus();
    const closeOutside = (event: Event) => {
      if (event.target instanceof Node && !container.current?.contains(event.target)) isOpen.value = false;
    };
    addEventListener("pointerdown", closeOutside);
    addEventListener("focusin", closeOutside);
    return () => {
      removeEventListener("pointerdown", closeOutside);
      removeEventListener("focusin", closeOutside);
    };
  }, [isOpen.value]);
  useEffect(() => () => void (isOpen.value = false), []);
  const handleKey = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !isOpen.value) return;
    event.stopPropagation();
    event.preventDefault();
    isOpen.value = false;
    button.current?.focus();
  };
  const agent = currentChoice.value.agent;
  const cannotAnswer = currentAgent.value ? !currentAgent.value.answers : agents.value.length > 0;
  return (
    <span class="agent-model" ref={container} onKeyDown={handleKey}>
      <button type="button" ref={button} class="quiet model" aria-expanded={isOpen.value} title={s.agents.choose} onClick={() => (isOpen.value = !isOpen.value)}>
        <span class="visually-hidden">{s.agents.choose}: </span>{agent && <b class={cannotAnswer ? "wrong" : ""}>{agent}</b>}<span class="brief">{currentModel.value}</span>
      </button>
      {isOpen.value && <div class="menu agent-model-menu" role="dialog" aria-label={s.agents.choose} tabIndex={-1} ref={dialog}><Choices close={() => { isOpen.value = false; button.current?.focus(); }} /></div>}
    </span>
  );
}
