"""A chat app in memory that behaves as badly as it is told to, the channel to it, and a gateway over both.

The app outlives gateways, as real ones do: what was not taken from it is told again, and what was sent stays.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from holdfast.channels.pairing import Pairing, Sender
from holdfast.channels.ports import Abilities, ChannelFailure, ChannelHealth, Take
from holdfast.channels.worker import Gateway
from holdfast.domain.chats import Chat, ChatKind, FileRef, Inbound, Outgoing
from holdfast.domain.clock import SystemClock
from holdfast.store.ports import Store
from tests.support.in_process_app import House

Fault = Literal["lost", "accepted_then_silent", "silent", "too_many", "forbidden", "broken"]
"""What happens to the next message: it never gets there; it gets there and nobody says so; nobody knows; the
app wants a pause; it refuses for good; the client itself fails."""
ADA = "7"
WORDS_OF_THE_MACHINE_ROOM = re.compile(
    r"\b(journal|segment|generation|owner|lease|epoch|fold|settled?|spool|owed|paid|boundary|marker|in doubt"
    r"|steer|compact)\b",
    re.IGNORECASE,
)
"""They never reach people."""


class Shown(msgspec.Struct):
    """A message as people see it now."""

    id: str
    key: str
    text: str
    body: Outgoing
    edits: int = 0


class Parlour:
    """The app itself."""

    def __init__(self, name: str = "parlour", dedupes: bool = False, chars_max: int = 4_000) -> None:
        self.name = name
        self.abilities = Abilities(chars_max, True, True, True, dedupes, True, 20)
        self.unread: list[Inbound] = []
        self.rung = asyncio.Event()
        self.chats: dict[str, list[Shown]] = {}
        self.files: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.edit_faults: list[Fault] = []
        self.fetch_faults: list[Fault] = []
        self.hold: asyncio.Event | None = None
        self.held = asyncio.Event()
        self.is_well = True
        self.sends = 0
        self.typed = 0
        self._updates = 0

    def say(
        self,
        text: str,
        chat: str = "42",
        sender: str = ADA,
        kind: ChatKind = "dm",
        addressed: bool = True,
        press: str = "",
        files: tuple[FileRef, ...] = (),
        update_id: str = "",
    ) -> Inbound:
        """Somebody writes something, or presses something."""
        self._updates += 1
        named = Chat(self.name, kind, chat)
        update_id = update_id or str(self._updates)
        inbound = Inbound(named, update_id, sender, "Ada", text, files, press, addressed)
        self.tell(inbound)
        return inbound

    def tell(self, inbound: Inbound) -> None:
        """Something that the channel is told; again, if it was told before."""
        self.unread.append(inbound)
        self.rung.set()

    def texts(self, chat: str = "42") -> list[str]:
        return [each.text for each in self.chats.get(chat, [])]

    def press(self, label: str, chat: str = "42") -> Inbound:
        """Press the newest button that says so."""
        for each in reversed(self.chats[chat]):
            for button in each.body.buttons:
                if button.text == label:
                    return self.say("", chat, press=button.press)
        raise AssertionError(f"no button says {label}: {self.chats[chat]}")

    def accept(self, chat: str, message: Outgoing, key: str) -> str:
        shown = self.chats.setdefault(chat, [])
        if self.abilities.dedupes_sends:
            for each in shown:
                if each.key == key:
                    return each.id
        self.sends += 1
        text = f"(again) {message.text}" if message.is_again else message.text
        shown.append(Shown(f"p{self.sends}", key, text, message))
        return shown[-1].id


class ParlourChannel:
    """A client of the app, as a gateway has one."""

    def __init__(self, app: Parlour) -> None:
        self.app = app
        self.name = app.name
        self.abilities = app.abilities

    async def listen(self, take: Take) -> None:
        while True:
            self.app.rung.clear()
            while self.app.unread:
                # Only what was taken is forgotten.
                inbound = self.app.unread[0]
                await take(inbound)
                self.app.unread.remove(inbound)
            await self.app.rung.wait()

    async def send(self, chat: Chat, message: Outgoing, key: str) -> str:
        fault = self.app.faults.pop(0) if self.app.faults else None
        await self._misbehave(fault, lambda: self.app.accept(chat.chat, message, key))
        if self.app.hold is not None:
            self.app.held.set()
            await self.app.hold.wait()
        return self.app.accept(chat.chat, message, key)

    async def edit(self, chat: Chat, platform_id: str, message: Outgoing) -> None:
        def edit() -> None:
            shown = next(each for each in self.app.chats[chat.chat] if each.id == platform_id)
            shown.text, shown.body, shown.edits = message.text, message, shown.edits + 1

        await self._misbehave(self.app.edit_faults.pop(0) if self.app.edit_faults else None, edit)
        edit()

    async def _misbehave(self, fault: Fault | None, accept: Callable[[], object]) -> None:
        # As over a network: the other tasks get their turn.
        await asyncio.sleep(0)
        match fault:
            case "lost":
                raise ChannelFailure(channel=self.name, detail="refused", arrived=False)
            case "accepted_then_silent":
                accept()
                raise ChannelFailure(channel=self.name, detail="timed out", arrived=None)
            case "silent":
                raise ChannelFailure(channel=self.name, detail="timed out", arrived=None)
            case "too_many":
                raise ChannelFailure(channel=self.name, detail="too many", retry_after_ms=150)
            case "forbidden":
                raise ChannelFailure(channel=self.name, detail="blocked", final=True)
            case "broken":
                raise RuntimeError("a fault of the client")

    async def show_typing(self, chat: Chat) -> None:
        self.app.typed += 1

    async def fetch(self, file: FileRef) -> bytes:
        await self._misbehave(self.app.fetch_faults.pop(0) if self.app.fetch_faults else None, lambda: None)
        return self.app.files[file.ref]

    async def health(self) -> ChannelHealth:
        return (
            ChannelHealth(True, "It answers.") if self.app.is_well else ChannelHealth(False, "It does not.")
        )

    async def close(self) -> None:
        return


class Desk:
    """A gateway over a house and an app, and what tests ask of all three."""

    def __init__(self, home: House, app: Parlour, gateway: Gateway, told: list[str]) -> None:
        self.home = home
        self.store: Store = home.store
        self.app = app
        self.gateway = gateway
        self.told = told
        """What an operator reads."""

    async def shown(self, *texts: str, chat: str = "42") -> None:
        """Wait until the chat shows exactly these."""

        async def is_so() -> bool:
            return self.app.texts(chat) == list(texts)

        try:
            await self.home.until(is_so)
        except AssertionError:
            raise AssertionError(f"{chat} shows {self.app.texts(chat)}, not {list(texts)}") from None

    async def quiet(self) -> None:
        """Wait until everything that came is dealt with, answered, told and delivered."""

        async def is_so() -> bool:
            name = self.app.name
            if self.app.unread or await self.store.received(name, 1) or await self.store.active_runs():
                return False
            for route in await self.store.routes(name):
                rows = await self.store.deliveries(route.chat.route, 100)
                if any(row.state in ("waiting", "sending", "changed") for row in rows):
                    return False
                if route.session_id and route.cursor < await self.store.head(route.session_id):
                    return False
            return True

        await self.home.until(is_so, f"quiet in {self.app.name}: {self.app.chats}, {self.told}")

    async def quiet_question(self, chat: str = "42") -> None:
        """Wait until the chat shows something to press."""

        async def is_so() -> bool:
            return any(each.body.buttons for each in self.app.chats.get(chat, []))

        await self.home.until(is_so, f"a question in {self.app.chats}, {self.told}")

    async def session(self, chat: str = "42") -> Any:
        """The conversation that a chat is at."""
        route = await self.store.route(Chat(self.app.name, "dm", chat).route)
        assert route is not None
        return route.session_id


def gateway_of(home: House, app: Parlour, told: list[str], **more: Any) -> Gateway:
    clock = SystemClock()
    store, engine = more.pop("store", home.store), more.pop("engine", home.engine)
    return Gateway(
        store, engine, [more.pop("channel", ParlourChannel(app))],
        Pairing(home.store, clock, lambda bits: 12_345), clock, home.ids, lambda: 0.0,
        retry_ms=more.pop("retry_ms", 20), tell=told.append, **more,
    )  # fmt: skip


@asynccontextmanager
async def desk(home: House, app: Parlour | None = None, **more: Any) -> AsyncIterator[Desk]:
    """A gateway at work, to which Ada may speak."""
    app = app or Parlour()
    told: list[str] = []
    await Pairing(home.store, SystemClock(), lambda bits: 1).allow(Sender(app.name, ADA, "Ada", 0))
    gateway = gateway_of(home, app, told, **more)
    await gateway.start()
    try:
        yield Desk(home, app, gateway, told)
    finally:
        await gateway.stop(0.0)
    for shown in (each for chat in app.chats.values() for each in chat):
        assert not WORDS_OF_THE_MACHINE_ROOM.search(shown.text), shown.text
