"""People who talk to a real server through chat apps, while the server is killed and the apps misbehave.

Telegram is `tests/support/telegram_api.py`, called through the real client library; the webhook channel has a
receiver of its own. Both report each request, so that a test can kill the server at any step of it.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp
from aiohttp import web

from holdfast.channels.pairing import Pairing, Sender
from holdfast.channels.telegram.bot_file import SavedTelegramBot, write_bot
from holdfast.domain.clock import SystemClock
from holdfast.domain.webhook_signing import decode_key
from holdfast.settings.secret_file import CHANNEL_WEBHOOK_KEY_FILE, read_or_create_webhook_key
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.killer import is_set_within
from tests.crash.scripted_model import GatedModelServer, gated_model_server
from tests.crash.writer_history import temporary_store_folder
from tests.support import telegram_api
from tests.support.api_client import ApiClient, api_client
from tests.support.server_process import ServerProcess, server_process
from tests.support.telegram_api import TOKEN, TelegramApi
from tests.support.turn_script import Script, ScriptStep
from tests.support.webhook_receiver import WebhookReceiver, headers_for, webhook_receiver

Json = dict[str, Any]
Channel = Literal["telegram", "webhook"]
StrikeCondition = Callable[[str, str, Json], bool]
"""Whether to kill now, given the step of a call and its arguments."""
TIMEOUT_S = 120.0
POLL_S = 0.02
PRESS_S = 3.0
"""How long a person waits before they press a button."""
TELEGRAM_PEOPLE, PROGRAMS = 40, 8
RESENT_LABEL = "Sent again"
"""The label of a message that may be a repetition."""
ABANDONED_NOTICE = "It was left there."
"""The notice of an answer that waited for a button when its chat sent another message."""
WRITES = ("sendMessage", "editMessageText", "message", "edit")


@dataclass
class ChatRoom:
    """One chat and its messages, each with the number or the id of its update."""

    channel: Channel
    name: str
    scripts: list[Script] = field(default_factory=list)
    updates: list[Any] = field(default_factory=list)


@dataclass
class WriteAttempt:
    """An attempt of the server to write in a chat. `life`: how often the server had been killed before it."""

    room: str
    method: str
    text: str
    kills_before: int
    was_answered: bool = False


@dataclass
class RecordingReceiver(WebhookReceiver):
    """The receiver of the webhook channel, which reports each step of a call."""

    on_stage: Callable[[str, str, Json], None] = lambda *_: None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read() or b"{}")
        self.on_stage("arrived", body.get("type", ""), body)
        response = await super().answer(request)
        self.on_stage("accepted", body.get("type", ""), body)
        with suppress(ConnectionError):
            await response.prepare(request)
            await response.write_eof()
            self.on_stage("answered", body.get("type", ""), body)
        return response


class ChatCrashHarness:
    """A server with its chats. Telegram names chats by numbers, the webhook channel by letters."""

    def __init__(
        self,
        server: ServerProcess,
        model_server: GatedModelServer,
        telegram: TelegramApi,
        program: RecordingReceiver,
    ) -> None:
        self.server = server
        self.model_server = model_server
        self.telegram = telegram
        self.webhook = program
        self.rooms: list[ChatRoom] = []
        self.calls: list[WriteAttempt] = []
        self.kills = 0
        self._by_request: dict[int, WriteAttempt] = {}
        self._strike_condition: StrikeCondition | None = None
        self._killed = asyncio.Event()
        self._numbers = itertools.count()
        self._pending_presses: dict[str, tuple[str, float]] = {}
        telegram.on_stage = self._on_stage
        program.on_stage = self._on_stage

    # What people do.

    def room(self, channel: Channel) -> ChatRoom:
        """Return a chat without messages."""
        number = sum(each.channel == channel for each in self.rooms)
        assert number < (TELEGRAM_PEOPLE if channel == "telegram" else PROGRAMS)
        room = ChatRoom(channel, str(1 + number) if channel == "telegram" else f"p{number}")
        self.rooms.append(room)
        return room

    async def send(self, room: ChatRoom, *steps: ScriptStep, hold_at: int | None = None) -> Script:
        """Send a message; return once the app has it, or for the webhook once the server has stored it.

        The answer waits before word `hold_at` until its gate opens.
        """
        letter = "t" if room.channel == "telegram" else "w"
        script = Script(f"{letter}{next(self._numbers)}", steps or (ScriptStep(8),))
        if hold_at is not None:
            self.model_server.gate(script.name, 0, hold_at)
        room.scripts.append(script)
        if room.channel == "telegram":
            room.updates.append(self.telegram.post_message(int(room.name), script.text))
        else:
            room.updates.append(f"msg_{script.name}")
            await self.post_to_webhook(room, script.text, room.updates[-1])
        return script

    async def post_to_webhook(self, room: ChatRoom, text: str, webhook_id: str) -> None:
        """Post to the server under an id until it acknowledges the message."""
        await self._post_until_accepted({"chat": room.name, "sender": room.name, "text": text}, webhook_id)

    async def _post_until_accepted(self, payload: Json, webhook_id: str) -> None:
        body = json.dumps(payload).encode()
        async with asyncio.timeout(TIMEOUT_S), aiohttp.ClientSession() as http:
            while True:
                headers = headers_for(self.webhook.key, body, webhook_id)
                url = f"{self.server.address}/api/channels/webhook"
                with suppress(aiohttp.ClientError):
                    async with http.post(url, data=body, headers=headers) as answer:
                        if answer.status == 202:
                            return
                        assert answer.status >= 500, await answer.text()
                await asyncio.sleep(POLL_S)

    async def wait_for_answers(self, *rooms: ChatRoom) -> None:
        """Wait until each of these chats shows every answer, whole and in order.

        The timeout starts again after each kill, since a server that is killed often makes no progress.
        """
        deadline, kills = time.monotonic() + TIMEOUT_S, self.kills
        while wrong := [each for room in rooms or self.rooms if (each := self.mismatch(room))]:
            if self.kills != kills:
                deadline, kills = time.monotonic() + TIMEOUT_S, self.kills
            assert time.monotonic() < deadline, "\n".join([*wrong, self.server.errors[-3000:]])
            for room in rooms or self.rooms:
                await self._press_continue(room)
            await asyncio.sleep(POLL_S)

    async def _press_continue(self, room: ChatRoom) -> None:
        """Press the button of an answer that was interrupted too often, after a while."""
        found = self._continue_button(room)
        before, at = self._pending_presses.get(room.name, ("", 0.0))
        if found is None or found[1] != before:
            self._pending_presses[room.name] = found[1] if found else "", time.monotonic()
        elif time.monotonic() - at > PRESS_S:
            self._pending_presses[room.name] = before, time.monotonic()
            if room.channel == "telegram":
                self.telegram.press_button(int(room.name), int(found[0]), found[1])
            else:
                pressed = {"chat": room.name, "sender": room.name, "press": found[1]}
                await self._post_until_accepted(pressed, f"press_{next(self._numbers)}")

    def _continue_button(self, room: ChatRoom) -> tuple[str, str] | None:
        """Return the message that asks whether to continue, if any, and the payload of its button."""
        if room.channel == "telegram":
            shown = self.telegram.shown(int(room.name))
            buttons = {
                str(each.id): [(b["text"], b["callback_data"]) for b in each.buttons] for each in shown
            }
        else:
            mine = [call for call in self.webhook.calls if call[1].get("chat") == room.name]
            buttons = {
                body.get("id", f"own-{name}"): [(b["text"], b["press"]) for b in body["buttons"]]
                for name, body in mine
                if body["type"] in ("message", "edit")
            }
        waiting = [
            (name, press) for name, those in buttons.items() for text, press in those if text == "Continue"
        ]
        return waiting[-1] if waiting else None

    async def wait_until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)

    def mismatch(self, room: ChatRoom) -> str:
        """Return what is wrong with the texts that a chat shows now, or an empty text."""
        if self.shown(room) == [word for answer in self._answers(room) for word in answer.split()]:
            return ""
        said = [script.name for script in room.scripts]
        return f"{room.channel} {room.name} was asked {said} and shows {self.texts(room)}"

    def _answers(self, room: ChatRoom) -> list[str]:
        """Return the words that each message is to be answered with.

        An answer that waits for a button ends when the chat sends another message. The chat says so, and the
        words of the answer so far stay. The last answer in a chat has nothing after it, so it is whole.
        """
        shown, answers = self.shown(room), [script.answer() for script in room.scripts]
        begun = [
            "".join(f"{each} " for each in shown if each.split(".")[0] == script.name)
            for script in room.scripts
        ]
        cut = [whole.startswith(part) and part != whole for part, whole in zip(begun, answers, strict=True)]
        if any(cut[-1:]) or sum(cut) > sum(ABANDONED_NOTICE in text for text in self.texts(room)):
            return answers
        return [part if is_cut else whole for part, is_cut, whole in zip(begun, cut, answers, strict=True)]

    # What the apps show.

    def shown(self, room: ChatRoom) -> list[str]:
        """Return the texts of a chat, without messages that are labelled as repetitions."""
        if room.channel == "webhook":
            return _numbered_words(" ".join(self.webhook.texts(room.name)))
        kept: list[list[str]] = []
        for message in self.telegram.shown(int(room.name)):
            words = _numbered_words(message.text)
            if not words:
                continue
            if RESENT_LABEL in message.versions[0]:
                before = next((each for each in reversed(kept) if each == words[: len(each)]), None)
                if before is not None:
                    kept.remove(before)
            kept.append(words)
        return [word for words in kept for word in words]

    def texts(self, room: ChatRoom) -> list[str]:
        if room.channel == "webhook":
            return self.webhook.texts(room.name)
        return self.telegram.texts(int(room.name))

    def resent_count(self, room: ChatRoom) -> int:
        """Return how many messages of a chat are labelled as repetitions."""
        assert room.channel == "telegram"
        return sum(RESENT_LABEL in each.versions[0] for each in self.telegram.shown(int(room.name)))

    # What happens to the server.

    def kill_when(self, condition: StrikeCondition) -> None:
        """Kill the server as soon as the condition holds."""
        self._strike_condition = condition

    async def wait_killed_and_restart(self, next_condition: StrikeCondition | None = None) -> None:
        """Wait for the kill, and start the server; it may be killed at the next moment."""
        async with asyncio.timeout(TIMEOUT_S):
            await self._killed.wait()
        await self.wait_killed()
        self._strike_condition = next_condition
        try:
            await self.server.start()
        except AssertionError:
            # It may be killed before it answers; whether that is why it ended is seen when it is buried.
            assert self._killed.is_set()

    async def kill_within(self, seconds: float, condition: StrikeCondition) -> None:
        """Kill the server at a moment, but no later than that, and start it again."""
        self._strike_condition = condition
        if not await is_set_within(self._killed, seconds):
            self.server.send_kill()
        await self.wait_killed()
        await self.server.start()

    async def kill_and_start(self) -> None:
        self.server.send_kill()
        await self.wait_killed()
        await self.server.start()

    async def wait_killed(self) -> None:
        self._strike_condition = None
        self._killed.clear()
        await self.server.wait_killed()
        self.kills += 1

    def _on_stage(self, step: str, method: str, asked: Json) -> None:
        room = str(asked.get("chat_id", asked.get("chat", "")))
        if method in WRITES and step == "arrived":
            call = self._by_request[id(asked)] = WriteAttempt(room, method, asked["text"], self.kills)
            self.calls.append(call)
        elif method in WRITES and step == "answered":
            self._by_request[id(asked)].was_answered = True
        if self._strike_condition is not None and self._strike_condition(step, method, asked):
            self._strike_condition = None
            self.server.send_kill()
            self._killed.set()

    # What is true in the end.

    async def audit(self) -> list[str]:
        """Return every problem, once everything is answered."""
        wrong = [each for room in self.rooms if (each := self.mismatch(room))]
        wrong += self._needless_resend_labels()
        wrong += [
            f"marked though it can be told: {body}" for _, body in self.webhook.calls if body.get("again")
        ]
        async with api_client(self.server.address) as api:
            wrong += await self._wrong_sessions(api)
        return wrong

    def _needless_resend_labels(self) -> list[str]:
        """Return messages that are labelled as repetitions although the attempt before had a clear outcome.

        A killed server may have begun a request that never arrived here, so only its first attempt is known
        to have none before it.
        """
        wrong = []
        for number, call in enumerate(self.calls):
            if call.method != "sendMessage" or RESENT_LABEL not in call.text:
                continue
            before = [each for each in self.calls[:number] if each.room == call.room]
            is_first = not before and call.kills_before == 0
            if is_first or (
                before and before[-1].was_answered and before[-1].kills_before == call.kills_before
            ):
                wrong.append(f"{call} was marked after {before[-1:]}")
        return wrong

    async def _wrong_sessions(self, api: ApiClient) -> list[str]:
        """Return conversations that differ from the messages of one chat and their answers."""
        found: list[list[tuple[str, str]]] = []
        for session in (await api.get("/api/sessions?limit=100"))["sessions"]:
            turns: list[tuple[str, str]] = []
            for role, _, words in await api.message_texts(session["id"]):
                if role == "user":
                    turns.append((words, ""))
                elif role == "assistant":
                    turns[-1] = (turns[-1][0], turns[-1][1] + words)
            found.append(turns)
        expected = [
            list(zip((script.text for script in room.scripts), self._answers(room), strict=True))
            for room in self.rooms
            if room.scripts
        ]
        return [f"no conversation is {each}, but {found}" for each in expected if each not in found] + [
            f"nobody said {each}" for each in found if each not in expected
        ]


def _numbered_words(text: str) -> list[str]:
    return [word for word in text.split() if word.count(".") == 2 and word.replace(".", "").isalnum()]


@asynccontextmanager
async def chat_crash_harness(seed: int = 0) -> AsyncIterator[ChatCrashHarness]:
    """Run a server that everyone may write to, and check at the end that nothing is wrong."""
    with temporary_store_folder() as folder:
        data = folder / "store"
        await _prepare(data)
        telegram = TelegramApi(shuffle_rng=random.Random(seed))
        webhook = RecordingReceiver(
            key=decode_key(read_or_create_webhook_key(data / CHANNEL_WEBHOOK_KEY_FILE, print))
        )
        async with (
            gated_model_server() as model_server,
            telegram_api.telegram_server(telegram),
            webhook_receiver(webhook),
        ):
            settings = {"telegram_api_url": telegram.url, "channel_webhook_url": webhook.url}
            async with server_process(data, model_server.url, **settings) as server:
                harness = ChatCrashHarness(server, model_server, telegram, webhook)
                yield harness
                model_server.open_all_gates()
                await harness.wait_for_answers()
                # Chats are told in order: what was still to come has come before the answer to this.
                for room in harness.rooms:
                    await harness.send(room)
                await harness.wait_for_answers()
                assert not (wrong := await harness.audit()), "\n".join(wrong)


async def _prepare(data: Path) -> None:
    """Connect both channels, and pair the senders."""
    store = await SqliteStore.open(data)
    try:
        pairing = Pairing(store, SystemClock(), lambda bits: 0)
        for number in range(TELEGRAM_PEOPLE):
            await pairing.allow(Sender("telegram", str(1 + number), "Ada", 0))
        for number in range(PROGRAMS):
            await pairing.allow(Sender("webhook", f"p{number}", "Ada", 0))
    finally:
        await store.close()
    write_bot(data, SavedTelegramBot(TOKEN))
