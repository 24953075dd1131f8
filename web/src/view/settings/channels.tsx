// Chat channels: their status, connecting a bot, and the users who may write.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ApiError } from "../../core/api";
import type { ChannelList, ChannelInfo, ChannelTestResult, SenderList, SenderInfo, UnknownSenderList } from "../../core/protocol";
import { age } from "../../core/format_time";
import { attempt } from "../app/actions";
import { api, now, showNotice } from "../app/store";
import { settingsText } from "../text/settings";

const POLL_MS = 5_000;

export function ChannelSettings() {
  const channels = useSignal<readonly ChannelInfo[]>([]);
  const load = async () => (channels.value = (await api.get<ChannelList>("api/channels")).channels);
  useEffect(() => {
    void attempt(load);
    // The page shows a lost connection.
    const timer = setInterval(() => void load().catch(() => undefined), POLL_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <section aria-labelledby="set-channels">
      <h3 id="set-channels">{settingsText.channels}</h3>
      <p class="note quiet">{settingsText.channelsHelp}</p>
      {channels.value.map((each) => <ChannelCard key={each.name} channel={each} onChange={(list) => (channels.value = list.channels)} />)}
      <SenderSettings />
    </section>
  );
}

function ChannelCard({ channel, onChange }: { channel: ChannelInfo; onChange: (list: ChannelList) => void }) {
  const testResult = useSignal<ChannelTestResult | null>(null);
  const busy = useSignal(false);
  /** Show errors at the channel, word for word. */
  const runRequest = async (request: () => Promise<unknown>) => {
    busy.value = true;
    testResult.value = null;
    try {
      await request();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      testResult.value = { ok: false, detail: error.message };
    } finally {
      busy.value = false;
    }
  };
  const test = () => runRequest(async () => {
    testResult.value = await api.post<ChannelTestResult>(`api/channels/${channel.name}/test`);
    onChange(await api.get<ChannelList>("api/channels"));
  });
  const disconnect = () => runRequest(async () => onChange(await api.post<ChannelList>("api/channels/telegram/disconnect")));
  const name = settingsText.channelNames[channel.name] ?? channel.name;
  return (
    <div class="channel" role="group" aria-labelledby={`set-channel-${channel.name}`}>
      <p class="buttons"><b id={`set-channel-${channel.name}`}>{name}</b> <span class="note quiet">{stateText(channel)}</span><span class="spacer" />
        {channel.connected && <button type="button" disabled={busy.value} aria-label={`${settingsText.test} ${name}`} onClick={() => void test()}>{settingsText.test}</button>}
        {channel.connected && !channel.fixed && <button type="button" class="quiet" disabled={busy.value} aria-label={`${settingsText.disconnect} ${name}`} onClick={() => void disconnect()}>{settingsText.disconnect}</button>}</p>
      {channel.last_error && <p class="note wrong">{settingsText.lastError(channel.last_error_at ? age(channel.last_error_at, now.value) : "", channel.last_error)}</p>}
      {channel.undelivered && <p class="note wrong">{settingsText.undelivered(age(channel.undelivered_at, now.value), channel.undelivered)}</p>}
      {!channel.connected && channel.name === "telegram" && <ConnectForm busy={busy.value} connect={(token) => runRequest(async () => onChange(await api.post<ChannelList>("api/channels/telegram/connect", { token })))} />}
      {!channel.connected && channel.name === "webhook" && <p class="note quiet">{settingsText.webhookHelp}</p>}
      <p role="status" class={testResult.value?.ok === false ? "note wrong" : "note good"}>{busy.value ? settingsText.testing : testResult.value && (testResult.value.ok ? settingsText.works(testResult.value.detail) : testResult.value.detail)}</p>
    </div>
  );
}

function stateText(channel: ChannelInfo): string {
  if (!channel.connected) return settingsText.notConnected;
  const sent = (channel.delivered["sent"] ?? 0) + (channel.delivered["again"] ?? 0);
  return [channel.serving ? settingsText.serving : settingsText.otherServerConnected, settingsText.traffic(channel.received, sent), ...(channel.waiting ? [settingsText.waitingToBeSent(channel.waiting)] : [])].join(" · ");
}

function ConnectForm({ busy, connect }: { busy: boolean; connect: (token: string) => Promise<void> }) {
  const token = useSignal("");
  return (
    <form class="fields" onSubmit={(event) => (event.preventDefault(), void connect(token.value.trim()))}>
      <label>{settingsText.botToken} <input type="password" autocomplete="off" value={token.value} onInput={(event) => (token.value = event.currentTarget.value)} /></label>
      <p class="note quiet">{settingsText.botTokenHelp}</p>
      <p class="buttons"><button type="submit" class="strong" disabled={busy || !token.value.trim()}>{settingsText.connectTelegram}</button></p>
    </form>
  );
}

function SenderSettings() {
  const waiting = useSignal<UnknownSenderList["waiting"]>([]);
  const senders = useSignal<SenderList["senders"]>([]);
  const code = useSignal("");
  const errorText = useSignal("");
  const load = async () => {
    waiting.value = (await api.get<UnknownSenderList>("api/pairing")).waiting;
    senders.value = (await api.get<SenderList>("api/senders")).senders;
  };
  useEffect(() => {
    void attempt(load);
    const timer = setInterval(() => void load().catch(() => undefined), POLL_MS);
    return () => clearInterval(timer);
  }, []);
  const pair = async () => {
    errorText.value = "";
    try {
      const sender = await api.post<SenderInfo>("api/pairing", { code: code.value.trim() });
      code.value = "";
      showNotice(settingsText.senderAdded(sender.name || sender.sender));
      await load();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      errorText.value = error.message;
    }
  };
  const remove = (sender: SenderInfo) => attempt(async () => {
    await api.delete(`api/senders/${encodeURIComponent(sender.channel)}/${encodeURIComponent(sender.sender)}`);
    await load();
  });
  return (
    <div>
      <h4>{settingsText.unpairedSenders}</h4>
      {!waiting.value.length && <p class="note quiet">{settingsText.noUnpairedSenders}</p>}
      <ul aria-label={settingsText.unpairedSenders}>
        {waiting.value.map((each) => <li key={`${each.channel}:${each.sender}`}><b>{each.name || each.sender}</b> <span class="note quiet">{senderText(each)} · {age(each.asked_at, now.value)}</span></li>)}
      </ul>
      <form class="buttons" onSubmit={(event) => (event.preventDefault(), void pair())}>
        <label>{settingsText.code} <input value={code.value} maxLength={40} autocomplete="off" spellcheck={false} onInput={(event) => (code.value = event.currentTarget.value)} /></label>
        <button type="submit" disabled={!code.value.trim()}>{settingsText.addSender}</button>
      </form>
      <p role="status" class="note wrong">{errorText.value}</p>
      <h4>{settingsText.pairedSenders}</h4>
      {!senders.value.length && <p class="note quiet">{settingsText.noPairedSenders}</p>}
      <ul aria-label={settingsText.pairedSenders}>
        {senders.value.map((each) => (
          <li key={`${each.channel}:${each.sender}`} class="buttons"><b>{each.name || each.sender}</b> <span class="note quiet">{senderText(each)}</span><span class="spacer" />
            <button type="button" aria-label={`${settingsText.remove} ${each.name || each.sender}`} onClick={() => void remove(each)}>{settingsText.remove}</button></li>
        ))}
      </ul>
    </div>
  );
}

function senderText(sender: { readonly channel: string; readonly sender: string }): string {
  return `${settingsText.channelNames[sender.channel] ?? sender.channel} ${sender.sender}`;
}
