// Access: a password for browsers, tokens for programs.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { PasswordInfo, TokenList, TokenWithSecret } from "../../core/protocol";
import { age } from "../../core/format_time";
import { attempt } from "../app/actions";
import { api, now, showNotice } from "../app/store";
import { s } from "../text/index";
import { settingsText } from "../text/settings";

const RIGHTS = ["read", "write", "approve", "admin"] as const;

export function AccessSettings() {
  const password = useSignal("");
  const isSet = useSignal(false);
  useEffect(() => void attempt(async () => (isSet.value = (await api.get<PasswordInfo>("api/password")).is_set)), []);
  const setPassword = () => attempt(async () => {
    await api.post("api/password", { password: password.value });
    password.value = "";
    showNotice(isSet.value ? settingsText.passwordChanged : settingsText.passwordSet);
    isSet.value = true;
  });
  const removePassword = () => attempt(async () => {
    await api.delete("api/password");
    isSet.value = false;
    showNotice(settingsText.passwordRemoved);
  });
  return (
    <section aria-labelledby="set-entry">
      <h3 id="set-entry">{settingsText.access}</h3>
      <form class="buttons" onSubmit={(event) => (event.preventDefault(), void setPassword())}>
        <label>{settingsText.password} <input type="password" autocomplete="new-password" value={password.value} onInput={(event) => (password.value = event.currentTarget.value)} /></label>
        <button type="submit" disabled={!password.value}>{settingsText.setPassword}</button>
        {isSet.value && <button type="button" class="quiet" onClick={() => void removePassword()}>{settingsText.removePassword}</button>}
      </form>
      <Tokens />
    </section>
  );
}

function Tokens() {
  const tokens = useSignal<TokenList["tokens"] | null>(null);
  const name = useSignal("");
  const rights = useSignal<readonly string[]>(["read", "write"]);
  const created = useSignal<TokenWithSecret | null>(null);
  const load = () => attempt(async () => (tokens.value = (await api.get<TokenList>("api/tokens")).tokens));
  useEffect(() => void load(), []);
  const add = () => attempt(async () => {
    created.value = await api.post<TokenWithSecret>("api/tokens", { name: name.value.trim(), rights: rights.value });
    name.value = "";
    await load();
  });
  const revoke = (id: string) => attempt(async () => {
    await api.delete(`api/tokens/${id}`);
    if (created.value?.token.id === id) created.value = null;
    await load();
  });
  const toggle = (right: string) => (rights.value = rights.value.includes(right) ? rights.value.filter((each) => each !== right) : [...rights.value, right]);
  return (
    <div>
      <h4>{settingsText.tokens}</h4>
      {tokens.value?.length === 0 && <p class="note quiet">{settingsText.noTokens}</p>}
      <ul>
        {tokens.value?.map((token) => (
          <li key={token.id} class="buttons"><b>{token.name}</b> <span class="note quiet">{token.rights.map((each) => settingsText.rights[each]).join(", ")} · {token.last_used_at ? settingsText.lastUsed(age(token.last_used_at, now.value)) : settingsText.neverUsed}</span><span class="spacer" />
            <button type="button" aria-label={`${settingsText.revoke} ${token.name}`} onClick={() => void revoke(token.id)}>{settingsText.revoke}</button></li>
        ))}
      </ul>
      <form class="fields" onSubmit={(event) => (event.preventDefault(), void add())}>
        <label>{settingsText.tokenName} <input value={name.value} maxLength={100} onInput={(event) => (name.value = event.currentTarget.value)} /></label>
        <div class="buttons" role="group" aria-label={settingsText.tokenRights}>
          {RIGHTS.map((right) => <label key={right} class="check"><input type="checkbox" checked={rights.value.includes(right)} onChange={() => toggle(right)} /> {settingsText.rights[right]}</label>)}
        </div>
        <p class="buttons"><button type="submit" disabled={!name.value.trim() || !rights.value.length}>{settingsText.addToken}</button></p>
      </form>
      {created.value && <p role="status"><code>{created.value.secret}</code> <button type="button" onClick={() => void navigator.clipboard.writeText(created.value?.secret ?? "").then(() => showNotice(s.copied))}>{s.copy}</button> <span class="note">{settingsText.tokenShownOnce}</span></p>}
    </div>
  );
}
