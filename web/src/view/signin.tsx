// Signing in: by the link that the server printed, or by a password where one is set.

import { signal, useSignal } from "@preact/signals";
import { Refused } from "../core/api";
import type { Entered } from "../core/protocol";
import { begin, keepPageKey } from "./following";
import { api, hasPassword } from "./state";
import { s } from "./strings";

const failed = signal("");

/** A link carries its code behind the #, where no log and no other site sees it. Whether there was one. */
export async function signInByLink(): Promise<boolean> {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return false;
  history.replaceState(null, "", location.pathname + location.search);
  try {
    keepPageKey((await api.post<Entered>("api/sign-in", { code })).page_key);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    failed.value = error.problem.status === 401 ? s.linkUsed : error.message;
  }
  return true;
}

export function SignIn() {
  const password = useSignal("");
  const submit = async () => {
    try {
      keepPageKey((await api.post<Entered>("api/sign-in", { password: password.value })).page_key);
      failed.value = "";
      await begin();
      // To whatever the address names.
      dispatchEvent(new HashChangeEvent("hashchange"));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      failed.value = error.message;
    }
  };
  return (
    <main class="sign-in">
      <h1>{s.name}</h1>
      <p>{s.signInHow} <code>{s.signInCommand}</code></p>
      {hasPassword.value && <form onSubmit={(event) => (event.preventDefault(), void submit())}>
        <label>{s.password} <input type="password" autocomplete="current-password" value={password.value} onInput={(event) => (password.value = event.currentTarget.value)} /></label>
        <button type="submit" class="strong">{s.signIn}</button>
      </form>}
      {!hasPassword.value && <p class="note quiet">{s.noPassword}</p>}
      {failed.value && <p class="note wrong" role="alert">{failed.value}</p>}
    </main>
  );
}
