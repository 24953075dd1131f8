"""People who talk to a real server through chat apps, while the server is killed and the apps misbehave.

Telegram is `tests/support/telegram_api.py`, asked through the real client library; the webhook channel has a
receiver of its own. Both say what they are asked, so that the server can be killed at any step of it.
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
from holdfast.channels.telegram.bot_file import Bot, write_bot
from holdfast.domain.clock import SystemClock
from holdfast.domain.webhook_signing import key_of
from holdfast.settings.secret_file import FOR_CHANNEL, webhook_key
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.killer import is_set_within
from tests.crash.scripted_model import Actor, acting
from tests.crash.writer_history import scratch
from tests.support import telegram_api
from tests.support.api_client import Api, talking
from tests.support.server_process import Server, serving
from tests.support.telegram_api import TOKEN, TelegramApi
from tests.support.turn_script import Script, Step
from tests.support.webhook_receiver import Receiver, headers_for, receiving

Json = dict[str, Any]
Channel = Literal["telegram", "webhook"]
Moment = Callable[[str, str, Json], bool]
"""Whether it is now: at which step of what, and what was asked."""
PATIENCE_S = 120.0
LOOK_S = 0.02
PRESS_S = 3.0
"""How long a person waits before they press a button."""
TELEGRAM_PEOPLE, PROGRAMS = 40, 8
AGAIN = "Sent again"
"""What a message says that may be there twice."""
LEFT = "It was left there."
"""What a chat says of an answer that waited for a person when somebody wrote again."""
WRITES = ("sendMessage", "editMessageText", "message", "edit")


@dataclass
class Room:
    """One chat, and all that was said there: each with the number or the id of its update."""

    channel: Channel
    name: str
    said: list[Script] = field(default_factory=list)
    updates: list[Any] = field(default_factory=list)


@dataclass
class Call:
    """A try of the server to write in a chat. `life`: how often the server had been killed before it."""

    room: str
    method: str
    words: str
    life: int
    answered: bool = False


@dataclass
class Program(Receiver):
    """The receiver of the webhook channel, which says what happens to it."""

    on: Callable[[str, str, Json], None] = lambda *_: None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        told = json.loads(await request.read() or b"{}")
        self.on("arrived", told.get("type", ""), told)
        response = await super().answer(request)
        self.on("accepted", told.get("type", ""), told)
        with suppress(ConnectionError):
            await response.prepare(request)
            await response.write_eof()
            self.on("answered", told.get("type", ""), told)
        return response


class Party:
    """All of them at one server. Chats are named by numbers in Telegram and by letters elsewhere."""

    def __init__(self, server: Server, actor: Actor, telegram: TelegramApi, program: Program) -> None:
        self.server = server
        self.actor = actor
        self.telegram = telegram
        self.program = program
        self.rooms: list[Room] = []
        self.calls: list[Call] = []
        self.kills = 0
        self._by_request: dict[int, Call] = {}
        self._moment: Moment | None = None
        self._struck = asyncio.Event()
        self._numbers = itertools.count()
        self._pressing: dict[str, tuple[str, float]] = {}
        telegram.on = self._note
        program.on = self._note

    # What people do.

    def room(self, channel: Channel) -> Room:
        """A chat in which nothing was said yet."""
        number = sum(each.channel == channel for each in self.rooms)
        assert number < (TELEGRAM_PEOPLE if channel == "telegram" else PROGRAMS)
        room = Room(channel, str(1 + number) if channel == "telegram" else f"p{number}")
        self.rooms.append(room)
        return room

    async def say(self, room: Room, *steps: Step, hold_at: int | None = None) -> Script:
        """Returns once the app has it; a program, once it was told that it is kept.

        The answer waits before word `hold_at` until its gate is opened.
        """
        letter = "t" if room.channel == "telegram" else "w"
        script = Script(f"{letter}{next(self._numbers)}", steps or (Step(8),))
        if hold_at is not None:
            self.actor.gate(script.name, 0, hold_at)
        room.said.append(script)
        if room.channel == "telegram":
            room.updates.append(self.telegram.say(int(room.name), script.text))
        else:
            room.updates.append(f"msg_{script.name}")
            await self.call_in(room, script.text, room.updates[-1])
        return script

    async def call_in(self, room: Room, text: str, webhook_id: str) -> None:
        """Tell the server under an id until it says that it is kept."""
        await self._tell_in({"chat": room.name, "sender": room.name, "text": text}, webhook_id)

    async def _tell_in(self, told: Json, webhook_id: str) -> None:
        body = json.dumps(told).encode()
        async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as http:
            while True:
                headers = headers_for(self.program.key, body, webhook_id)
                url = f"{self.server.address}/api/channels/webhook"
                with suppress(aiohttp.ClientError):
                    async with http.post(url, data=body, headers=headers) as answer:
                        if answer.status == 202:
                            return
                        assert answer.status >= 500, await answer.text()
                await asyncio.sleep(LOOK_S)

    async def answered(self, *rooms: Room) -> None:
        """Until each of these chats shows every answer, whole and in order.

        Whoever is killed again and again comes to nothing: patience is counted from the last time.
        """
        deadline, kills = time.monotonic() + PATIENCE_S, self.kills
        while wrong := [each for room in rooms or self.rooms if (each := self.missing(room))]:
            if self.kills != kills:
                deadline, kills = time.monotonic() + PATIENCE_S, self.kills
            assert time.monotonic() < deadline, "\n".join([*wrong, self.server.errors[-3000:]])
            for room in rooms or self.rooms:
                await self._press_continue(room)
            await asyncio.sleep(LOOK_S)

    async def _press_continue(self, room: Room) -> None:
        """An answer that was cut off too often waits for a person, who presses a button after a while."""
        found = self._asked_to_continue(room)
        before, at = self._pressing.get(room.name, ("", 0.0))
        if found is None or found[1] != before:
            self._pressing[room.name] = found[1] if found else "", time.monotonic()
        elif time.monotonic() - at > PRESS_S:
            self._pressing[room.name] = before, time.monotonic()
            if room.channel == "telegram":
                self.telegram.press(int(room.name), int(found[0]), found[1])
            else:
                pressed = {"chat": room.name, "sender": room.name, "press": found[1]}
                await self._tell_in(pressed, f"press_{next(self._numbers)}")

    def _asked_to_continue(self, room: Room) -> tuple[str, str] | None:
        """The message that asks whether to go on, if there is one now, and what its button carries."""
        if room.channel == "telegram":
            shown = self.telegram.shown(int(room.name))
            buttons = {
                str(each.id): [(b["text"], b["callback_data"]) for b in each.buttons] for each in shown
            }
        else:
            mine = [call for call in self.program.calls if call[1].get("chat") == room.name]
            buttons = {
                told.get("id", f"own-{name}"): [(b["text"], b["press"]) for b in told["buttons"]]
                for name, told in mine
                if told["type"] in ("message", "edit")
            }
        waiting = [
            (name, press) for name, those in buttons.items() for text, press in those if text == "Continue"
        ]
        return waiting[-1] if waiting else None

    async def until(self, is_so: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)

    def missing(self, room: Room) -> str:
        """What is wrong with what a chat shows now; nothing, if all is well."""
        if self.shown(room) == [word for answer in self._answers(room) for word in answer.split()]:
            return ""
        said = [script.name for script in room.said]
        return f"{room.channel} {room.name} was asked {said} and shows {self.raw(room)}"

    def _answers(self, room: Room) -> list[str]:
        """Return the words that each message is to be answered with.

        An answer that waits for a person ends when somebody writes again. The chat says so, and its words so
        far stay. The last answer in a chat has nothing after it, so it is always whole.
        """
        shown, answers = self.shown(room), [script.answer() for script in room.said]
        begun = [
            "".join(f"{each} " for each in shown if each.split(".")[0] == script.name) for script in room.said
        ]
        cut = [whole.startswith(part) and part != whole for part, whole in zip(begun, answers, strict=True)]
        if any(cut[-1:]) or sum(cut) > sum(LEFT in text for text in self.raw(room)):
            return answers
        return [part if is_cut else whole for part, is_cut, whole in zip(begun, cut, answers, strict=True)]

    # What the apps show.

    def shown(self, room: Room) -> list[str]:
        """The words of a chat, without those of messages that were sent again and say so."""
        if room.channel == "webhook":
            return _words(" ".join(self.program.texts(room.name)))
        kept: list[list[str]] = []
        for message in self.telegram.shown(int(room.name)):
            words = _words(message.text)
            if not words:
                continue
            if AGAIN in message.versions[0]:
                before = next((each for each in reversed(kept) if each == words[: len(each)]), None)
                if before is not None:
                    kept.remove(before)
            kept.append(words)
        return [word for words in kept for word in words]

    def raw(self, room: Room) -> list[str]:
        if room.channel == "webhook":
            return self.program.texts(room.name)
        return self.telegram.texts(int(room.name))

    def again(self, room: Room) -> int:
        """How many messages of a chat say that they were sent again."""
        assert room.channel == "telegram"
        return sum(AGAIN in each.versions[0] for each in self.telegram.shown(int(room.name)))

    # What happens to the server.

    def strike_at(self, moment: Moment) -> None:
        """Kill the server at once when it is so."""
        self._moment = moment

    async def struck(self, and_then: Moment | None = None) -> None:
        """The server was killed as was asked for; it is started again, to be killed at the next moment."""
        async with asyncio.timeout(PATIENCE_S):
            await self._struck.wait()
        await self.bury()
        self._moment = and_then
        try:
            await self.server.start()
        except AssertionError:
            # It may be killed before it answers; whether that is why it ended is seen when it is buried.
            assert self._struck.is_set()

    async def strike_within(self, seconds: float, moment: Moment) -> None:
        """Kill the server at a moment, but no later than that, and start it again."""
        self._moment = moment
        if not await is_set_within(self._struck, seconds):
            self.server.strike()
        await self.bury()
        await self.server.start()

    async def kill_and_start(self) -> None:
        self.server.strike()
        await self.bury()
        await self.server.start()

    async def bury(self) -> None:
        self._moment = None
        self._struck.clear()
        await self.server.bury()
        self.kills += 1

    def _note(self, step: str, method: str, asked: Json) -> None:
        room = str(asked.get("chat_id", asked.get("chat", "")))
        if method in WRITES and step == "arrived":
            call = self._by_request[id(asked)] = Call(room, method, asked["text"], self.kills)
            self.calls.append(call)
        elif method in WRITES and step == "answered":
            self._by_request[id(asked)].answered = True
        if self._moment is not None and self._moment(step, method, asked):
            self._moment = None
            self.server.strike()
            self._struck.set()

    # What is true in the end.

    async def audit(self) -> list[str]:
        """What is wrong, once everything was answered."""
        wrong = [each for room in self.rooms if (each := self.missing(room))]
        wrong += self._marked_for_nothing()
        wrong += [
            f"marked though it can be told: {told}" for _, told in self.program.calls if told.get("again")
        ]
        async with talking(self.server.address) as api:
            wrong += await self._kept_wrongly(api)
        return wrong

    def _marked_for_nothing(self) -> list[str]:
        """Messages that say that they were sent again, though the try before them had a clear answer.

        A server that was killed may have begun to say what never came here, so only the first of them knows
        that nothing was tried before.
        """
        wrong = []
        for number, call in enumerate(self.calls):
            if call.method != "sendMessage" or AGAIN not in call.words:
                continue
            before = [each for each in self.calls[:number] if each.room == call.room]
            is_first = not before and call.life == 0
            if is_first or (before and before[-1].answered and before[-1].life == call.life):
                wrong.append(f"{call} was marked after {before[-1:]}")
        return wrong

    async def _kept_wrongly(self, api: Api) -> list[str]:
        """Conversations that are not, message by message, what was said in one chat, and answered."""
        found: list[list[tuple[str, str]]] = []
        for session in (await api.get("/api/sessions?limit=100"))["sessions"]:
            turns: list[tuple[str, str]] = []
            for role, _, words in await api.read(session["id"]):
                if role == "user":
                    turns.append((words, ""))
                elif role == "assistant":
                    turns[-1] = (turns[-1][0], turns[-1][1] + words)
            found.append(turns)
        expected = [
            list(zip((script.text for script in room.said), self._answers(room), strict=True))
            for room in self.rooms
            if room.said
        ]
        return [f"no conversation is {each}, but {found}" for each in expected if each not in found] + [
            f"nobody said {each}" for each in found if each not in expected
        ]


def _words(text: str) -> list[str]:
    return [word for word in text.split() if word.count(".") == 2 and word.replace(".", "").isalnum()]


@asynccontextmanager
async def party(seed: int = 0) -> AsyncIterator[Party]:
    """A server that everyone may speak to. In the end all must be well, whatever befell it."""
    with scratch() as folder:
        data = folder / "store"
        await _prepare(data)
        telegram = TelegramApi(shuffled=random.Random(seed))
        program = Program(key=key_of(webhook_key(data / FOR_CHANNEL, print)))
        async with acting() as actor, telegram_api.serving(telegram), receiving(program):
            settings = {"telegram_api_url": telegram.url, "channel_webhook_url": program.url}
            async with serving(data, actor.url, **settings) as server:
                guests = Party(server, actor, telegram, program)
                yield guests
                actor.open_all()
                await guests.answered()
                # Chats are told in order: what was still to come has come before the answer to this.
                for room in guests.rooms:
                    await guests.say(room)
                await guests.answered()
                assert not (wrong := await guests.audit()), "\n".join(wrong)


async def _prepare(data: Path) -> None:
    """Both channels, and who may speak there."""
    store = await SqliteStore.open(data)
    try:
        pairing = Pairing(store, SystemClock(), lambda bits: 0)
        for number in range(TELEGRAM_PEOPLE):
            await pairing.allow(Sender("telegram", str(1 + number), "Ada", 0))
        for number in range(PROGRAMS):
            await pairing.allow(Sender("webhook", f"p{number}", "Ada", 0))
    finally:
        await store.close()
    write_bot(data, Bot(TOKEN))
