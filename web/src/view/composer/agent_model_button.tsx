// Where one writes: who answers here, by agent and model, and the way to have another answer.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { agentHere, agents, choice, modelHere } from "./agent_model";
import { lazily, modules } from "../app/lazy";
import { s } from "../text/index";

const Choices = lazily(async () => (await modules.settings()).Choices);

const isOpen = signal(false);

/** Show the choices, wherever somebody asks for them. */
export function openChooser(): void {
  isOpen.value = true;
}

export function Chooser() {
  const box = useRef<HTMLSpanElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const dialog = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    if (!isOpen.value) return;
    // The choices may still be loading: the dialog takes the keyboard at once, so that Escape closes it.
    dialog.current?.focus();
    const outside = (event: Event) => {
      if (event.target instanceof Node && !box.current?.contains(event.target)) isOpen.value = false;
    };
    addEventListener("pointerdown", outside);
    addEventListener("focusin", outside);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("focusin", outside);
    };
  }, [isOpen.value]);
  useEffect(() => () => void (isOpen.value = false), []);
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || !isOpen.value) return;
    event.stopPropagation();
    event.preventDefault();
    isOpen.value = false;
    button.current?.focus();
  };
  const agent = choice.value.agent;
  const isWrong = agentHere.value ? !agentHere.value.answers : agents.value.length > 0;
  return (
    <span class="chooser" ref={box} onKeyDown={press}>
      <button type="button" ref={button} class="quiet model" aria-expanded={isOpen.value} title={s.agents.choose} onClick={() => (isOpen.value = !isOpen.value)}>
        <span class="unseen">{s.agents.choose}: </span>{agent && <b class={isWrong ? "wrong" : ""}>{agent}</b>}<span class="brief">{modelHere.value}</span>
      </button>
      {isOpen.value && <div class="menu choosing" role="dialog" aria-label={s.agents.choose} tabIndex={-1} ref={dialog}><Choices close={() => { isOpen.value = false; button.current?.focus(); }} /></div>}
    </span>
  );
}
