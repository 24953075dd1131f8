"""Chat apps on a real server: what comes in, what goes back, who may speak, and who is turned away."""

import asyncio
import base64
import io
import json
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, wait_until
from tests.support.free_ports import own_port
from tests.support.telegram_api import TOKEN, TelegramApi, telegram_server_in_thread
from tests.support.webhook_receiver import WebhookReceiver, headers_for, key_in, webhook_receiver_in_thread

ADA = 77
LET_IN = "You are let in. Say it again, please."
CODE = re.compile(r"\b[2-9A-Z]{4}-[2-9A-Z]{4}\b")


@pytest.fixture(scope="module")
def telegram() -> Iterator[TelegramApi]:
    with telegram_server_in_thread() as api:
        yield api


@pytest.fixture(scope="module")
def receiver() -> Iterator[WebhookReceiver]:
    with webhook_receiver_in_thread() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def home(
    speaker: ScriptedModelServer,
    telegram: TelegramApi,
    receiver: WebhookReceiver,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[CliHarness]:
    """The command of everyone here, with both channels set up in its environment."""
    environ = environ_for(speaker) | {
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "HOLDFAST_TELEGRAM_API_URL": telegram.url,
        "HOLDFAST_CHANNEL_WEBHOOK_URL": receiver.url,
    }
    with cli_in(tmp_path_factory.mktemp("channels"), **environ) as command:
        yield command


@pytest.fixture(scope="module")
def server(home: CliHarness, receiver: WebhookReceiver) -> RunningServer:
    running = home.serve("--port", "0")
    receiver.key = key_in((running.folder / "channel-webhook.key").read_text())
    return running


async def post_webhook(
    api: ApiClient,
    receiver: WebhookReceiver,
    payload: dict[str, Any],
    webhook_id: str = "",
    at: float | None = None,
) -> Any:
    """What the server answers to a program that is signed."""
    body = json.dumps(payload).encode()
    headers = headers_for(receiver.key, body, webhook_id, at)
    return await api.post("/api/channels/webhook", data=io.BytesIO(body), headers=headers)


async def pair(server: RunningServer, api: ApiClient, receiver: WebhookReceiver, who: str) -> None:
    """A person of the webhook channel who may speak, in a chat of the same name."""
    async with api_client(server.address, token="") as anonymous:
        await post_webhook(anonymous, receiver, {"chat": who, "sender": who, "text": "hello?"})
        assert anonymous.status == 202
    (message,) = await receiver.wait_until(lambda: receiver.texts(who))
    await api.post("/api/pairing", {"code": CODE.findall(message)[0]})
    assert api.status == 200
    await receiver.wait_until(lambda: receiver.texts(who)[1:] == [LET_IN])


async def channel(api: ApiClient, name: str) -> dict[str, Any]:
    info: dict[str, Any] = next(
        each for each in (await api.get("/api/channels"))["channels"] if each["name"] == name
    )
    return info


# Who may speak.


async def test_an_unknown_telegram_sender_gets_only_a_pairing_code_until_confirmed(
    server: RunningServer, telegram: TelegramApi, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        before = len((await api.get("/api/sessions"))["sessions"])
        asked = len(speaker.requests)
        telegram.post_message(ADA, "Tell me everything")
        (message,) = await telegram.wait_until(lambda: telegram.texts(ADA))
        assert "everything" not in message
        (code,) = set(CODE.findall(message))
        senders = (await api.get("/api/pairing"))["waiting"]
        (waiting,) = [each for each in senders if each["sender"] == str(ADA)]
        assert (waiting["channel"], waiting["name"]) == ("telegram", "Ada")
        assert code not in json.dumps(waiting)
        telegram.post_message(ADA, "And now?")
        await wait_until(_has_received(api, "telegram", 2))
        assert len((await api.get("/api/sessions"))["sessions"]) == before
        assert len(speaker.requests) == asked
        assert len(telegram.texts(ADA)) == 1
        # Typed as people do.
        sender = await api.post("/api/pairing", {"code": f" {code.lower().replace('-', ' ')} "})
        assert (api.status, sender["sender"], sender["name"]) == (200, str(ADA), "Ada")
        telegram.post_message(ADA, "good morning")
        await telegram.wait_until(lambda: telegram.texts(ADA)[-1].strip() == "good morning")
        assert "everything" not in str(speaker.requests)
        assert len((await api.get("/api/sessions"))["sessions"]) == before + 1


async def test_a_wrong_pairing_code_is_refused(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        problem = await api.post("/api/pairing", {"code": "2222-2222"})
        assert (api.status, problem["code"]) == (404, "no_such_code")


async def test_a_sender_is_paired_and_revoked_by_commands_while_the_server_runs(
    server: RunningServer, home: CliHarness, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address, token="") as caller:
        update = {"chat": "bo", "sender": "bo", "sender_name": "Bo", "text": "hi"}
        await post_webhook(caller, receiver, update)
        (message,) = await receiver.wait_until(lambda: receiver.texts("bo"))
        (code,) = set(CODE.findall(message))
        listed = await asyncio.to_thread(home.run, "channels", "list")
        assert "bo" in listed.stdout and "telegram" in listed.stdout and code not in listed.stdout
        assert listed.stdout.count("set up") == 2 and "not set up" not in listed.stdout
        paired = await asyncio.to_thread(home.run, "channels", "pair", code)
        assert paired.stdout == "Bo may speak on webhook from now on.\n", paired.stderr
        await receiver.wait_until(lambda: receiver.texts("bo")[-1] == LET_IN)
        again = await asyncio.to_thread(home.run, "channels", "pair", code, "--json")
        assert (again.returncode, json.loads(again.stderr)["code"]) == (1, "no_such_code")
        await post_webhook(caller, receiver, {"chat": "bo", "sender": "bo", "text": "good evening"})
        await receiver.wait_until(lambda: receiver.texts("bo")[-1].strip() == "good evening")
        found = json.loads((await asyncio.to_thread(home.run, "channels", "senders", "--json")).stdout)
        assert [each["name"] for each in found if each["sender"] == "bo"] == ["Bo"]
        gone = await asyncio.to_thread(home.run, "channels", "revoke", "webhook", "bo")
        assert gone.stdout == "bo may not speak on webhook any more.\n"
        await post_webhook(caller, receiver, {"chat": "bo", "sender": "bo", "text": "still here?"})
        await receiver.wait_until(lambda: CODE.search(receiver.texts("bo")[-1]))


async def test_a_sender_revoked_over_http_must_pair_again(
    server: RunningServer, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address) as api:
        await pair(server, api, receiver, "cy")
        senders = (await api.get("/api/senders"))["senders"]
        assert [each["channel"] for each in senders if each["sender"] == "cy"] == ["webhook"]
        await api.request("DELETE", "/api/senders/webhook/cy")
        assert api.status == 204
        problem = await api.request("DELETE", "/api/senders/webhook/cy")
        assert (api.status, problem["code"]) == (404, "no_such_sender")
        await post_webhook(api, receiver, {"chat": "cy", "sender": "cy", "text": "secret plans"})
        await receiver.wait_until(lambda: len(receiver.texts("cy")) == 3)
        assert CODE.search(receiver.texts("cy")[-1])


# The webhook.


async def test_a_webhook_call_is_answered_by_a_signed_call(
    server: RunningServer, receiver: WebhookReceiver, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        await pair(server, api, receiver, "dee")
        unsigned = receiver.unsigned
        kept = await post_webhook(api, receiver, {"chat": "dee", "sender": "dee", "text": "count 30"})
        assert (api.status, kept) == (202, {"kept": True})
        numbers = " ".join(map(str, range(30)))
        await receiver.wait_until(lambda: receiver.texts("dee")[-1].strip() == numbers)
        assert len(receiver.texts("dee")) == 3, "it is one message, which was edited"
        assert receiver.unsigned == unsigned
        types = {body["type"] for _, body in receiver.calls if body.get("chat") == "dee"}
        assert types <= {"message", "edit", "typing"} and "message" in types


async def test_a_repeated_webhook_call_is_answered_once(
    server: RunningServer, receiver: WebhookReceiver, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        await pair(server, api, receiver, "eve")
        for _ in range(3):
            said = {"chat": "eve", "sender": "eve", "text": "only once"}
            kept = await post_webhook(api, receiver, said, "msg_the_same")
            assert (api.status, kept) == (202, {"kept": True})
        await post_webhook(api, receiver, {"chat": "eve", "sender": "eve", "text": "and then"})
        await receiver.wait_until(lambda: receiver.texts("eve")[-1].strip() == "and then")
        assert [text.strip() for text in receiver.texts("eve")[2:]] == ["only once", "and then"]


async def test_a_button_press_in_a_webhook_call_approves_the_tool_call(
    server: RunningServer, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address) as api:
        await pair(server, api, receiver, "fay")
        await post_webhook(api, receiver, {"chat": "fay", "sender": "fay", "text": "run echo pressed"})

        def asked() -> dict[str, str]:
            mine = [body for _, body in list(receiver.calls) if body.get("chat") == "fay"]
            buttons = [each for body in mine for each in body.get("buttons", ())]
            return next((each for each in buttons if each["text"] == "Allow once"), {})

        button = await receiver.wait_until(asked)
        await post_webhook(api, receiver, {"chat": "fay", "sender": "fay", "press": button["press"]})
        await receiver.wait_until(lambda: any("It said: pressed" in text for text in receiver.texts("fay")))


async def test_webhook_files_are_fetched_only_from_the_receiver_host(
    server: RunningServer, receiver: WebhookReceiver, speaker: ScriptedModelServer
) -> None:
    async with api_client(server.address) as api:
        await pair(server, api, receiver, "gus")
        origin = receiver.url.removesuffix("/answers")
        receiver.files["/notes.txt"] = b"the blue door"
        update, file = {"chat": "gus", "sender": "gus"}, {"url": f"{origin}/notes.txt", "name": "notes.txt"}
        await post_webhook(api, receiver, update | {"text": "what colour", "files": [file]})
        assert api.status == 202
        await receiver.wait_until(lambda: "the blue door" in json.dumps(speaker.requests[-5:]))
        own = f"{server.address}api/me"
        for url in (own, "file:///etc/passwd", f"{origin}@127.0.0.1/x", "//x", "http://["):
            problem = await post_webhook(api, receiver, update | {"files": [{"url": url}]})
            assert (api.status, problem["code"]) == (400, "bad_channel_call"), url


async def test_a_message_is_delivered_once_whatever_the_receiver_answers(
    server: RunningServer, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address) as api:
        await pair(server, api, receiver, "hal")
        receiver.add_faults("message", "dropped", (503, {}), (429, {"retry-after": "1"}))
        await post_webhook(api, receiver, {"chat": "hal", "sender": "hal", "text": "come what may"})

        def tries() -> list[str]:
            calls = [(name, body) for name, body in list(receiver.calls) if body.get("text") != LET_IN]
            mine = [name for name, body in calls if body.get("chat") == "hal"]
            return [name for name in mine if name.startswith("d_")]

        await receiver.wait_until(lambda: len(tries()) == 4, 60)
        assert len(set(tries())) == 1, "each try had the same id"
        assert [text.strip() for text in receiver.texts("hal")[2:]] == ["come what may"]


# Who is turned away.


async def test_an_unsigned_webhook_call_is_refused_without_effect(
    server: RunningServer, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address) as api, api_client(server.address, token="") as caller:
        before = (await channel(api, "webhook"))["received"]
        body = json.dumps({"chat": "x", "sender": "x", "text": "let me in"}).encode()
        good = headers_for(receiver.key, body)
        wrong = [
            {},
            {**good, "webhook-signature": ""},
            {**good, "webhook-signature": "v1,AAAA"},
            {**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v1a,")},
            {**good, "webhook-id": "msg_other"},
            {**good, "webhook-timestamp": str(int(good["webhook-timestamp"]) + 1)},
            {**good, "webhook-timestamp": "soon"},
            headers_for(b"k" * 32, body),
            headers_for(receiver.key, body + b" "),
            headers_for(receiver.key, body, at=time.time() - 400),
            headers_for(receiver.key, body, at=time.time() + 400),
        ]
        for headers in wrong:
            sent = {**headers, "content-type": "application/json"}
            problem = await caller.post("/api/channels/webhook", data=body, headers=sent)
            assert caller.status in (401, 429), (headers, problem)
            assert problem["code"] in ("bad_signature", "too_many_tries")
        assert problem["code"] == "too_many_tries", "whoever fails too often is told to wait"
        assert (await channel(api, "webhook"))["received"] == before
        assert [each for each in (await api.get("/api/pairing"))["waiting"] if each["sender"] == "x"] == []
        # Whatever others did, what is signed is heard.
        await post_webhook(caller, receiver, {"chat": "ida", "sender": "ida", "text": "hello"})
        assert caller.status == 202


async def test_an_oversized_or_malformed_webhook_call_is_refused(
    server: RunningServer, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address, token="") as caller:
        problem = await post_webhook(caller, receiver, {"chat": "x", "sender": "x", "text": "a" * 1_100_000})
        assert (caller.status, problem["code"]) == (413, "too_large")
        for said in (
            {},
            {"chat": "x", "text": "no sender"},
            {"chat": "a:b", "sender": "x", "text": "t"},
            {"chat": "x", "sender": "x"},
            {"chat": "x", "sender": "x", "text": "t", "admin": True},
            {"type": "message", "chat": "x", "kind": "dm", "thread": "", "text": "what we sent ourselves"},
        ):
            problem = await post_webhook(caller, receiver, said)
            assert (caller.status, problem["code"]) == (400, "bad_channel_call"), said


async def test_webhook_calls_pass_the_request_gate(server: RunningServer, receiver: WebhookReceiver) -> None:
    body = json.dumps({"chat": "x", "sender": "x", "text": "t"}).encode()
    async with api_client(server.address, token="") as caller:
        for more, status in (({"host": "evil.example"}, 421), ({"origin": "http://evil.example"}, 403)):
            headers = {**headers_for(receiver.key, body), **more}
            await caller.post("/api/channels/webhook", data=body, headers=headers)
            assert caller.status == status
        headers = {**headers_for(receiver.key, body), "content-type": "text/plain"}
        await caller.post("/api/channels/webhook", data=body, headers=headers)
        assert caller.status == 415


async def test_channel_routes_need_the_admin_right(server: RunningServer, home: CliHarness) -> None:
    made = await asyncio.to_thread(home.run, "tokens", "add", "reader", "--right", "read", "--right", "write")
    async with api_client(server.address, token=made.stdout.strip()) as reader:
        for method, path in (
            ("GET", "/api/channels"),
            ("POST", "/api/channels/webhook/test"),
            ("POST", "/api/channels/telegram/disconnect"),
            ("GET", "/api/pairing"),
            ("POST", "/api/pairing"),
            ("GET", "/api/senders"),
            ("DELETE", "/api/senders/webhook/x"),
        ):
            problem = await reader.request(method, path)
            assert (reader.status, problem["code"]) == (403, "not_allowed"), path


# How channels fare.


async def test_channels_report_their_status_and_can_be_tested(
    server: RunningServer, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address) as api:
        info = await channel(api, "telegram")
        assert info["connected"] and info["fixed"] and info["serving"]
        tried = await api.post("/api/channels/telegram/test")
        assert tried == {"ok": True, "detail": "@holdfast_test_bot"}
        assert (await api.post("/api/channels/webhook/test"))["ok"]
        receiver.add_faults("test", (404, {}))
        tried = await api.post("/api/channels/webhook/test")
        assert tried == {"ok": False, "detail": "the receiver answered 404: not now"}
        assert (await channel(api, "webhook"))["last_error"] == tried["detail"]
        receiver.add_faults("test", (302, {"location": "http://127.0.0.1:9/"}))
        tried = await api.post("/api/channels/webhook/test")
        assert not tried["ok"] and "leads elsewhere" in tried["detail"]
        await api.post("/api/channels/carrier-pigeon/test")
        assert api.status == 404


async def test_a_command_with_another_environment_asks_the_running_server(
    server: RunningServer, home: CliHarness
) -> None:
    own = ("TELEGRAM_BOT_TOKEN", "HOLDFAST_TELEGRAM_API_URL", "HOLDFAST_CHANNEL_WEBHOOK_URL")
    bare = CliHarness({name: text for name, text in home.environ.items() if name not in own})
    listed = await asyncio.to_thread(bare.run, "channels", "list", "--json")
    output = json.loads(listed.stdout)
    assert output["running"], listed.stderr
    found = {each["name"]: (each["connected"], each["serving"]) for each in output["channels"]}
    assert found == {"telegram": (True, True), "webhook": (True, True)}
    plain = await asyncio.to_thread(bare.run, "channels", "list")
    assert plain.stdout.count("set up") == 2 and "not set up" not in plain.stdout


async def test_metrics_count_received_and_delivered_channel_messages(
    server: RunningServer, receiver: WebhookReceiver
) -> None:
    async with api_client(server.address) as api:
        await pair(server, api, receiver, "jo")
        await post_webhook(api, receiver, {"chat": "jo", "sender": "jo", "text": "tally me"})
        await receiver.wait_until(lambda: receiver.texts("jo")[-1].strip() == "tally me")

        async def is_counted() -> bool:
            text = (await api.get("/metrics")).decode()
            received = re.search(r'_received_total\{channel="webhook"\} (\d+)', text)
            sent = re.search(r'_delivered_total\{channel="webhook",outcome="sent"\} (\d+)', text)
            return bool(received and sent and int(received[1]) >= 2 and int(sent[1]) >= 1)

        await wait_until(is_counted)
        assert 'holdfast_channel_waiting{channel="telegram"}' in (await api.get("/metrics")).decode()


async def test_channel_secrets_are_private_and_never_shown(server: RunningServer, home: CliHarness) -> None:
    path = server.folder / "channel-webhook.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = path.read_text().strip()
    assert key.startswith("whsec_") and len(base64.b64decode(key.removeprefix("whsec_"))) == 32
    async with api_client(server.address) as api:
        for where in ("/api/channels", "/api/settings", "/api/about", "/metrics"):
            reply = json.dumps(await api.get(where), default=str)
            assert key not in reply and TOKEN not in reply
        problem = await api.post("/api/channels/telegram/disconnect")
        assert (api.status, problem["code"]) == (409, "setting_fixed")


# Connecting a bot.


@pytest.fixture
def unconnected(tmp_path: Path, speaker: ScriptedModelServer) -> Iterator[tuple[CliHarness, TelegramApi]]:
    """A server without a bot, and a platform where there is one."""
    with telegram_server_in_thread() as platform:
        environ = environ_for(speaker) | {"HOLDFAST_TELEGRAM_API_URL": platform.url}
        with cli_in(tmp_path, **environ) as command:
            yield command, platform


async def test_a_bot_connected_at_runtime_survives_a_restart(
    unconnected: tuple[CliHarness, TelegramApi],
) -> None:
    home, platform = unconnected
    server = home.serve("--port", "0")
    async with api_client(server.address) as api:
        assert not (await channel(api, "telegram"))["connected"]
        wrong = "123456:AAwrongTOKENwrongTOKENwrongTOKENwr00"
        for token, words in (("nonsense", "not a bot's token"), (wrong, "")):
            problem = await api.post("/api/channels/telegram/connect", {"token": token})
            assert (api.status, problem["code"]) == (400, "channel_refused"), problem
            assert words in problem["detail"] and token not in problem["detail"]
        assert not (await channel(api, "telegram"))["connected"]
        await api.post("/api/channels/telegram/connect", {"token": TOKEN})
        assert api.status == 200
        path = server.folder / "telegram.toml"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        platform.post_message(ADA, "hello")
        (message,) = await platform.wait_until(lambda: platform.texts(ADA))
        await api.post("/api/pairing", {"code": CODE.findall(message)[0]})
    server.process.terminate()
    assert await asyncio.to_thread(server.process.wait, 20) == 0
    again = home.serve("--port", "0")
    platform.post_message(ADA, "are you back")
    await platform.wait_until(lambda: platform.texts(ADA)[-1].strip() == "are you back", 40)
    async with api_client(again.address) as api:
        await api.post("/api/channels/telegram/disconnect")
        assert api.status == 200
        assert not (await channel(api, "telegram"))["connected"]
        assert not path.exists()
        platform.post_message(ADA, "nobody hears this")
        await api.post("/api/channels/telegram/test")
        assert api.status == 404


async def test_telegram_calls_the_webhook_that_was_registered(
    tmp_path: Path, speaker: ScriptedModelServer
) -> None:
    port = own_port()
    with telegram_server_in_thread() as platform:
        environ = environ_for(speaker) | {
            "HOLDFAST_TELEGRAM_API_URL": platform.url,
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "HOLDFAST_TELEGRAM": "webhook",
            "HOLDFAST_PUBLIC_URL": f"http://127.0.0.1:{port}/holdfast",
        }
        with cli_in(tmp_path, **environ) as command:
            server = command.serve("--port", str(port))
            await platform.wait_until(lambda: platform.webhook)
            assert platform.webhook["url"] == f"http://127.0.0.1:{port}/holdfast/api/channels/telegram"
            platform.post_message(ADA, "hello")
            (message,) = await platform.wait_until(lambda: platform.texts(ADA))
            paired = await asyncio.to_thread(command.run, "channels", "pair", CODE.findall(message)[0])
            assert paired.returncode == 0, paired.stderr
            platform.post_message(ADA, "called in")
            await platform.wait_until(lambda: platform.texts(ADA)[-1].strip() == "called in")
            async with api_client(server.address, token="") as caller:
                update = {"update_id": 1, "message": {"text": "I am not Telegram"}}
                for secret in ("", "wrong", platform.webhook["secret_token"] + "x"):
                    headers = {"x-telegram-bot-api-secret-token": secret}
                    problem = await caller.post("/api/channels/telegram", update, headers=headers)
                    assert (caller.status, problem["code"]) == (401, "wrong_channel_secret")


async def test_a_server_without_channels_refuses_channel_calls(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    async with api_client(server.address, token="") as caller:
        for name in ("telegram", "webhook"):
            problem = await caller.post(f"/api/channels/{name}", {"update_id": 1})
            assert (caller.status, problem["code"]) == (404, "no_such_channel")
    assert not (server.folder / "channel-webhook.key").exists()
    # The server that runs was asked: it is its word that nothing is set up.
    listed = await asyncio.to_thread(holdfast.run, "channels", "list")
    assert listed.stdout.count("not set up") == 2 and "here" not in listed.stdout


def _has_received(api: ApiClient, name: str, count: int) -> Any:
    async def has_count() -> bool:
        return bool((await channel(api, name))["received"] >= count)

    return has_count
