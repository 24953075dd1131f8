// Chat apps: how they fare, connecting a bot, and who may write to the assistant there.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Refused } from "../../core/api";
import type { ChannelList, ChannelTold, ChannelTried, SenderList, SenderTold, StrangerList } from "../../core/protocol";
import { age } from "../../core/format_time";
import { attempt } from "../app/actions";
import { api, now, say } from "../app/store";
import { set } from "../text/settings";

const LOOK_EVERY_MS = 5_000;

export function Channels() {
  const found = useSignal<readonly ChannelTold[]>([]);
  const load = async () => (found.value = (await api.get<ChannelList>("api/channels")).channels);
  useEffect(() => {
    void attempt(load);
    // What goes wrong here is told by the page as a whole.
    const looking = setInterval(() => void load().catch(() => undefined), LOOK_EVERY_MS);
    return () => clearInterval(looking);
  }, []);
  return (
    <section aria-labelledby="set-channels">
      <h3 id="set-channels">{set.channels}</h3>
      <p class="note quiet">{set.channelsHelp}</p>
      {found.value.map((each) => <Channel key={each.name} told={each} changed={(list) => (found.value = list.channels)} />)}
      <People />
    </section>
  );
}

function Channel({ told, changed }: { told: ChannelTold; changed: (list: ChannelList) => void }) {
  const tried = useSignal<ChannelTried | null>(null);
  const busy = useSignal(false);
  /** What is wrong is said where it was asked, word for word. */
  const work = async (what: () => Promise<unknown>) => {
    busy.value = true;
    tried.value = null;
    try {
      await what();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      tried.value = { ok: false, detail: error.message };
    } finally {
      busy.value = false;
    }
  };
  const test = () => work(async () => {
    tried.value = await api.post<ChannelTried>(`api/channels/${told.name}/test`);
    changed(await api.get<ChannelList>("api/channels"));
  });
  const disconnect = () => work(async () => changed(await api.post<ChannelList>("api/channels/telegram/disconnect")));
  const name = set.channelNames[told.name] ?? told.name;
  return (
    <div class="channel" role="group" aria-labelledby={`set-channel-${told.name}`}>
      <p class="buttons"><b id={`set-channel-${told.name}`}>{name}</b> <span class="note quiet">{state(told)}</span><span class="spread" />
        {told.connected && <button type="button" disabled={busy.value} aria-label={`${set.test} ${name}`} onClick={() => void test()}>{set.test}</button>}
        {told.connected && !told.fixed && <button type="button" class="quiet" disabled={busy.value} aria-label={`${set.disconnect} ${name}`} onClick={() => void disconnect()}>{set.disconnect}</button>}</p>
      {told.last_error && <p class="note wrong">{set.lastError(told.last_error_at ? age(told.last_error_at, now.value) : "", told.last_error)}</p>}
      {told.undelivered && <p class="note wrong">{set.undelivered(age(told.undelivered_at, now.value), told.undelivered)}</p>}
      {!told.connected && told.name === "telegram" && <Connect busy={busy.value} connect={(token) => work(async () => changed(await api.post<ChannelList>("api/channels/telegram/connect", { token })))} />}
      {!told.connected && told.name === "webhook" && <p class="note quiet">{set.webhookHelp}</p>}
      <p role="status" class={tried.value?.ok === false ? "note wrong" : "note good"}>{busy.value ? set.testing : tried.value && (tried.value.ok ? set.works(tried.value.detail) : tried.value.detail)}</p>
    </div>
  );
}

function state(told: ChannelTold): string {
  if (!told.connected) return set.notConnected;
  const sent = (told.delivered["sent"] ?? 0) + (told.delivered["again"] ?? 0);
  return [told.serving ? set.serving : set.standingBy, set.cameAndWent(told.received, sent), ...(told.waiting ? [set.waitingToBeSent(told.waiting)] : [])].join(" · ");
}

function Connect({ busy, connect }: { busy: boolean; connect: (token: string) => Promise<void> }) {
  const token = useSignal("");
  return (
    <form class="fields" onSubmit={(event) => (event.preventDefault(), void connect(token.value.trim()))}>
      <label>{set.botToken} <input type="password" autocomplete="off" value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} /></label>
      <p class="note quiet">{set.botTokenHelp}</p>
      <p class="buttons"><button type="submit" class="strong" disabled={busy || !token.value.trim()}>{set.connectTelegram}</button></p>
    </form>
  );
}

function People() {
  const waiting = useSignal<StrangerList["waiting"]>([]);
  const senders = useSignal<SenderList["senders"]>([]);
  const code = useSignal("");
  const wrong = useSignal("");
  const load = async () => {
    waiting.value = (await api.get<StrangerList>("api/pairing")).waiting;
    senders.value = (await api.get<SenderList>("api/senders")).senders;
  };
  useEffect(() => {
    void attempt(load);
    const looking = setInterval(() => void load().catch(() => undefined), LOOK_EVERY_MS);
    return () => clearInterval(looking);
  }, []);
  const pair = async () => {
    wrong.value = "";
    try {
      const sender = await api.post<SenderTold>("api/pairing", { code: code.value.trim() });
      code.value = "";
      say(set.letIn(sender.name || sender.sender));
      await load();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      wrong.value = error.message;
    }
  };
  const remove = (sender: SenderTold) => attempt(async () => {
    await api.delete(`api/senders/${encodeURIComponent(sender.channel)}/${encodeURIComponent(sender.sender)}`);
    await load();
  });
  return (
    <div>
      <h4>{set.strangers}</h4>
      {!waiting.value.length && <p class="note quiet">{set.noStrangers}</p>}
      <ul aria-label={set.strangers}>
        {waiting.value.map((each) => <li key={`${each.channel}:${each.sender}`}><b>{each.name || each.sender}</b> <span class="note quiet">{who(each)} · {age(each.asked_at, now.value)}</span></li>)}
      </ul>
      <form class="buttons" onSubmit={(event) => (event.preventDefault(), void pair())}>
        <label>{set.code} <input value={code.value} maxLength={40} autocomplete="off" spellcheck={false} onInput={(event) => (code.value = event.currentTarget.value)} /></label>
        <button type="submit" disabled={!code.value.trim()}>{set.letThemIn}</button>
      </form>
      <p role="status" class="note wrong">{wrong.value}</p>
      <h4>{set.people}</h4>
      {!senders.value.length && <p class="note quiet">{set.noPeople}</p>}
      <ul aria-label={set.people}>
        {senders.value.map((each) => (
          <li key={`${each.channel}:${each.sender}`} class="buttons"><b>{each.name || each.sender}</b> <span class="note quiet">{who(each)}</span><span class="spread" />
            <button type="button" aria-label={`${set.remove} ${each.name || each.sender}`} onClick={() => void remove(each)}>{set.remove}</button></li>
        ))}
      </ul>
    </div>
  );
}

function who(person: { readonly channel: string; readonly sender: string }): string {
  return `${set.channelNames[person.channel] ?? person.channel} ${person.sender}`;
}
