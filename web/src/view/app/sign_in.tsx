// Sign in by the link that the server printed, or by a password if one is set.

import { signal, useSignal } from "@preact/signals";
import { ApiError } from "../../core/api";
import type { SignInResult } from "../../core/protocol";
import { connect, storePageKey } from "./session_sync";
import { api, hasPassword } from "./store";
import { s } from "../text/index";

const errorText = signal("");

/** Sign in by the code in the hash, which no log and no other site sees. Return whether there was one. */
export async function signInByLink(): Promise<boolean> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return false;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    storePageKey((await api.post<SignInResult>("api/sign-in", { code })).page_key);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    errorText.value = error.problem.status === 401 ? s.linkUsed : error.message;
  }
  return true;
}

/** Return the code of a pasted link, or the pasted code. */
const extractCode = (pasted: string) => /code=([^&\s]+)/.exec(pasted)?.[1] ?? pasted.trim();

export function SignIn() {
  const pasted = useSignal("");
  const password = useSignal("");
  const submit = async () => {
    const code = extractCode(pasted.value);
    try {
      storePageKey((await api.post<SignInResult>("api/sign-in", code ? { code } : { password: password.value })).page_key);
      errorText.value = "";
      await connect();
      // Open the page that the address names.
      dispatchEvent(new HashChangeEvent("hashchange"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      errorText.value = code && error.problem.status === 401 ? s.linkUsed : error.message;
    }
  };
  return (
    <main class="sign-in">
      <form onSubmit={(event) => (event.preventDefault(), void submit())}>
        <img src="./page/icon.svg" alt="" width="40" height="40" />
        <h1>{s.name}</h1>
        <p>{s.signInHow}</p>
        {hasPassword.value && <label>{s.password} <input type="password" autocomplete="current-password" value={password.value} onInput={(event) => (password.value = event.currentTarget.value)} /></label>}
        <label>{s.signInCode} <input autocomplete="off" spellcheck={false} value={pasted.value} onInput={(event) => (pasted.value = event.currentTarget.value)} /></label>
        {errorText.value && <p class="note wrong" role="alert">{errorText.value}</p>}
        <button type="submit" class="strong" disabled={!pasted.value.trim() && !password.value}>{s.signIn}</button>
        <p class="note quiet">{s.signInLost[0]} <code>{s.signInLost[1]}</code> {s.signInLost[2]}</p>
      </form>
    </main>
  );
}
