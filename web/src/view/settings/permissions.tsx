// What the agent may do without asking, and the settings that can be changed here.

import { useSignal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";
import { Refused } from "../../core/api";
import type { RuleList, SettingList, SettingTold } from "../../core/protocol";
import { attempt } from "../app/actions";
import { api } from "../app/store";
import { set } from "../text/settings";

export function Permissions() {
  const rules = useSignal<RuleList["rules"] | null>(null);
  const settings = useSignal<readonly SettingTold[]>([]);
  useEffect(() => {
    void attempt(async () => (rules.value = (await api.get<RuleList>("api/rules")).rules));
    void attempt(async () => (settings.value = (await api.get<SettingList>("api/settings")).settings));
  }, []);
  const revoke = (id: string) => attempt(async () => {
    await api.delete(`api/rules/${id}`);
    rules.value = rules.value?.filter((rule) => rule.id !== id) ?? null;
  });
  const change: Change = async (name, value) => void (settings.value = (await api.patch<SettingList>("api/settings", { [name]: value })).settings);
  return (
    <section aria-labelledby="set-may">
      <h3 id="set-may">{set.permissions}</h3>
      {settings.value.filter((each) => each.changeable || each.name === "approvals" || each.name === "resume").map((each) => <Setting key={each.name} told={each} change={change} />)}
      <h4>{set.rules}</h4>
      {rules.value?.length === 0 && <p class="note quiet">{set.noRules}</p>}
      <ul>
        {rules.value?.map((rule) => (
          <li key={rule.id} class="buttons"><b>{rule.tool}</b> <code>{rule.pattern}</code> <span class="note quiet">{rule.session_id ? set.here : set.everywhere}</span><span class="spread" />
            <button type="button" onClick={() => void revoke(rule.id)} aria-label={`${set.revoke} ${rule.pattern}`}>{set.revoke}</button></li>
        ))}
      </ul>
    </section>
  );
}

type Change = (name: string, value: unknown) => Promise<void>;

/** What stands between backticks is something to be typed. */
function WithCode({ text }: { text: string }) {
  return <>{text.split("`").map((each, place) => (place % 2 ? <code key={place}>{each}</code> : each))}</>;
}

/** One setting, by what it allows: a choice, a number, or a list. What is wrong with it, or that it is saved, stands below. */
function Setting({ told, change }: { told: SettingTold; change: Change }) {
  const id = useId();
  const wrong = useSignal("");
  const isSaved = useSignal(false);
  const choices = /^(\w+(?:, \w+)*) or (\w+)$/.exec(told.allowed);
  const label = set.names[told.name] ?? told.name.replaceAll("_", " ");
  const fixed = !told.changeable;
  const shown = Array.isArray(told.value) ? told.value.join(", ") : String(told.value ?? "");
  // Text that is not saved yet: the answer to another setting leaves it alone, and refused text can be corrected.
  const unsaved = useSignal<string | null>(null);
  const type = (text: string) => {
    unsaved.value = text;
    isSaved.value = false;
  };
  const save = async (text: string) => {
    wrong.value = "";
    try {
      await change(told.name, valueOf(text, told.value));
      if (unsaved.value !== text) return; // More was typed meanwhile.
      unsaved.value = null;
      isSaved.value = true;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = error.problem.code === "bad_setting" ? set.mustBe(told.allowed) : error.message;
    }
  };
  const same = { id, disabled: fixed, "aria-describedby": `${id}-help ${id}-said`, "aria-invalid": wrong.value ? true : undefined, value: unsaved.value ?? shown } as const;
  return (
    <div class="setting">
      <span><label for={id}>{label}</label> <span class="note quiet" id={`${id}-help`}><WithCode text={told.help} />{fixed && told.source !== "default" ? ` (${set.fixed(told.source)})` : ""}</span></span>
      {choices ? (
        <select {...same} onInput={(event) => type(event.currentTarget.value)} onChange={(event) => void save(event.currentTarget.value)}>
          {`${choices[1]}, ${choices[2]}`.split(", ").map((each) => <option key={each} value={each}>{set.choices[told.name]?.[each] ?? each}</option>)}
        </select>
      ) : (
        <input {...same} onInput={(event) => type(event.currentTarget.value)} onChange={(event) => void save(event.currentTarget.value)} />
      )}
      <p class={wrong.value ? "note wrong" : "note good"} id={`${id}-said`} role="status">{wrong.value || (isSaved.value && set.saved)}</p>
    </div>
  );
}

/** What was typed as what the setting holds; nothing is its default, and what is no number is refused in words. */
function valueOf(text: string, before: SettingTold["value"]): unknown {
  if (Array.isArray(before)) return text.split(",").map((each) => each.trim()).filter(Boolean);
  if (typeof before !== "number") return text;
  if (!text.trim()) return null;
  return Number.isNaN(Number(text)) ? text : Number(text);
}
