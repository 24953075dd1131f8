// Talking to the server, and coming in: addresses are relative, so that the page works below any path.

const dialog = document.getElementById("sign-in");
const form = { line: document.getElementById("sign-in-line"), password: document.getElementById("password") };
const waiting = [];

export async function api(method, path, body) {
  const sends = method === "GET" || method === "DELETE" ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) };
  const answer = await fetch(path.slice(1), { method, ...sends });
  const found = answer.status === 204 ? null : await answer.json();
  if (answer.ok) return found;
  if (found.code === "not_signed_in") dialog.hidden = false;
  throw Object.assign(new Error([found.detail, found.remedy].filter(Boolean).join(" ")), { status: answer.status });
}

// The code of a sign-in link is used at once and goes from the address: whoever reads it there later has nothing.
async function useLink() {
  if (!location.hash.startsWith("#code=")) return;
  const code = location.hash.slice(6);
  history.replaceState(null, "", location.pathname + location.search);
  try {
    await api("POST", "/api/sign-in", { code });
  } catch (error) {
    form.line.textContent = error.message;
  }
}

// Returns once somebody is signed in.
export async function comeIn() {
  await useLink();
  for (;;) {
    try {
      const me = await api("GET", "/api/me");
      dialog.hidden = true;
      return me;
    } catch (error) {
      if (error.status === 401) { form.password.focus(); await new Promise((resolve) => { waiting.push(resolve); }); }
      else await new Promise((resolve) => { setTimeout(resolve, 1000); });
    }
  }
}

export async function signOut() {
  await api("POST", "/api/sign-out");
  location.reload();
}

const goOn = () => { form.line.textContent = ""; waiting.splice(0).forEach((resolve) => resolve()); };

dialog.onsubmit = async (event) => {
  event.preventDefault();
  const password = form.password.value;
  form.password.value = "";
  try {
    await api("POST", "/api/sign-in", { password });
    dialog.hidden = true;
    if (waiting.length) goOn();
    else location.reload();
  } catch (error) {
    form.line.textContent = error.message;
  }
};

addEventListener("hashchange", async (event) => {
  if (!location.hash.startsWith("#code=")) return;
  event.stopImmediatePropagation();
  await useLink();
  location.reload();
});
