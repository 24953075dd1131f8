// What the agent may do without asking, and other settings that can be changed here.

import { useSignal } from "@preact/signals";
import { useEffect, useId } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { RuleList, SettingList, SettingInfo } from "../../core/protocol";
import { attempt } from "../app/actions";
import { api } from "../app/store";
import { settingsText } from "../text/settings";

export function PermissionSettings() {
  const rules = useSignal<RuleList["rules"] | null>(null);
  const settings = useSignal<readonly SettingInfo[]>([]);
  useEffect(() => {
    void attempt(async () => (rules.value = (await api.get<RuleList>("api/rules")).rules));
    void attempt(async () => (settings.value = (await api.get<SettingList>("api/settings")).settings));
  }, []);
  const revoke = (id: string) => attempt(async () => {
    await api.delete(`api/rules/${id}`);
    rules.value = rules.value?.filter((rule) => rule.id !== id) ?? null;
  });
  const change: ChangeSetting = async (name, value) => void (settings.value = (await api.patch<SettingList>("api/settings", { [name]: value })).settings);
  return (
    <section aria-labelledby="set-may">
      <h3 id="set-may">{settingsText.permissions}</h3>
      {settings.value.filter((each) => each.changeable || each.name === "approvals" || each.name === "resume").map((each) => <SettingRow key={each.name} setting={each} change={change} />)}
      <h4>{settingsText.rules}</h4>
      {rules.value?.length === 0 && <p class="note quiet">{settingsText.noRules}</p>}
      <ul>
        {rules.value?.map((rule) => (
          <li key={rule.id} class="buttons"><b>{rule.tool}</b> <code>{rule.pattern}</code> <span class="note quiet">{rule.session_id ? settingsText.here : settingsText.everywhere}</span><span class="spacer" />
            <button type="button" onClick={() => void revoke(rule.id)} aria-label={`${settingsText.revoke} ${rule.pattern}`}>{settingsText.revoke}</button></li>
        ))}
      </ul>
    </section>
  );
}

type ChangeSetting = (name: string, value: unknown) => Promise<void>;

/** Show text between backticks as code. */
function WithCode({ text }: { text: string }) {
  return <>{text.split("`").map((each, index) => (index % 2 ? <code key={index}>{each}</code> : each))}</>;
}

/** One setting as a choice, a number or a list, with its error or its success below. */
function SettingRow({ setting, change }: { setting: SettingInfo; change: ChangeSetting }) {
  const id = useId();
  const errorText = useSignal("");
  const isSaved = useSignal(false);
  const choices = /^(\w+(?:, \w+)*) or (\w+)$/.exec(setting.allowed);
  const label = settingsText.names[setting.name] ?? setting.name.replaceAll("_", " ");
  const isFixed = !setting.changeable;
  const shown = Array.isArray(setting.value) ? setting.value.join(", ") : String(setting.value ?? "");
  // Unsaved text: a change of another setting keeps it, and refused text can be corrected.
  const unsaved = useSignal<string | null>(null);
  const edit = (text: string) => {
    unsaved.value = text;
    isSaved.value = false;
  };
  const save = async (text: string) => {
    errorText.value = "";
    try {
      await change(setting.name, parseSetting(text, setting.value));
      if (unsaved.value !== text) return; // The text changed meanwhile.
      unsaved.value = null;
      isSaved.value = true;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      errorText.value = error.problem.code === "bad_setting" ? settingsText.mustBe(setting.allowed) : error.message;
    }
  };
  const inputProps = { id, disabled: isFixed, "aria-describedby": `${id}-help ${id}-status`, "aria-invalid": errorText.value ? true : undefined, value: unsaved.value ?? shown } as const;
  return (
    <div class="setting">
      <span><label for={id}>{label}</label> <span class="note quiet" id={`${id}-help`}><WithCode text={setting.help} />{isFixed && setting.source !== "default" ? ` (${settingsText.fixed(setting.source)})` : ""}</span></span>
      {choices ? (
        <select {...inputProps} onInput={(event) => edit(event.currentTarget.value)} onChange={(event) => void save(event.currentTarget.value)}>
          {`${choices[1]}, ${choices[2]}`.split(", ").map((each) => <option key={each} value={each}>{settingsText.choices[setting.name]?.[each] ?? each}</option>)}
        </select>
      ) : (
        <input {...inputProps} onInput={(event) => edit(event.currentTarget.value)} onChange={(event) => void save(event.currentTarget.value)} />
      )}
      <p class={errorText.value ? "note wrong" : "note good"} id={`${id}-status`} role="status">{errorText.value || (isSaved.value && settingsText.saved)}</p>
    </div>
  );
}

/** Parse the text as a value of the setting's type. Empty text is the default; the server refuses an invalid number. */
function parseSetting(text: string, current: SettingInfo["value"]): unknown {
  if (Array.isArray(current)) return text.split(",").map((each) => each.trim()).filter(Boolean);
  if (typeof current !== "number") return text;
  if (!text.trim()) return null;
  return Number.isNaN(Number(text)) ? text : Number(text);
}
