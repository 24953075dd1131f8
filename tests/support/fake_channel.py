"""An in-memory chat app with faults, its channel, and a gateway over both.

The app outlives gateways, as real ones do: it delivers unconfirmed updates again, and keeps sent messages.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

import msgspec

from holdfast.channels.pairing import Pairing, Sender
from holdfast.channels.ports import ChannelAbilities, ChannelFailure, ChannelHealth, InboundReceiver
from holdfast.channels.worker import ChannelWorkers
from holdfast.domain.chats import Chat, ChatKind, FileRef, InboundUpdate, OutboundMessage
from holdfast.domain.clock import SystemClock
from holdfast.store.ports import Store
from tests.support.in_process_app import AppHarness

Fault = Literal["lost", "accepted_then_silent", "silent", "too_many", "forbidden", "broken"]
"""The fate of the next send: it is lost; it arrives without an acknowledgement; its outcome is unknown; the
app asks for a pause; the app refuses it for good; the client itself fails.
"""
ADA = "7"
INTERNAL_TERMS = re.compile(
    r"\b(journal|segment|generation|owner|lease|epoch|fold|settled?|spool|owed|paid|boundary|marker|in doubt"
    r"|steer|compact)\b",
    re.IGNORECASE,
)
"""The faults after which a message never reaches people."""


class ShownMessage(msgspec.Struct):
    """A message as people see it now."""

    id: str
    key: str
    text: str
    body: OutboundMessage
    edits: int = 0


class FakeChatApp:
    """The chat app."""

    def __init__(self, name: str = "parlour", dedupes: bool = False, chars_max: int = 4_000) -> None:
        self.name = name
        self.abilities = ChannelAbilities(chars_max, True, True, True, dedupes, True, 20)
        self.unread: list[InboundUpdate] = []
        self.updated = asyncio.Event()
        self.chats: dict[str, list[ShownMessage]] = {}
        self.files: dict[str, bytes] = {}
        self.faults: list[Fault] = []
        self.edit_faults: list[Fault] = []
        self.fetch_faults: list[Fault] = []
        self.hold: asyncio.Event | None = None
        self.hold_reached = asyncio.Event()
        self.is_healthy = True
        self.send_count = 0
        self.typing_count = 0
        self._updates = 0

    def post_message(
        self,
        text: str,
        chat: str = "42",
        sender: str = ADA,
        kind: ChatKind = "dm",
        addressed: bool = True,
        press: str = "",
        files: tuple[FileRef, ...] = (),
        update_id: str = "",
    ) -> InboundUpdate:
        """Post a message or a button press of a person."""
        self._updates += 1
        chat_ref = Chat(self.name, kind, chat)
        update_id = update_id or str(self._updates)
        inbound = InboundUpdate(chat_ref, update_id, sender, "Ada", text, files, press, addressed)
        self.deliver_update(inbound)
        return inbound

    def deliver_update(self, inbound: InboundUpdate) -> None:
        """Deliver an update to the channel, or deliver it again."""
        self.unread.append(inbound)
        self.updated.set()

    def texts(self, chat: str = "42") -> list[str]:
        return [each.text for each in self.chats.get(chat, [])]

    def press_button(self, label: str, chat: str = "42") -> InboundUpdate:
        """Press the newest button with this text."""
        for each in reversed(self.chats[chat]):
            for button in each.body.buttons:
                if button.text == label:
                    return self.post_message("", chat, press=button.press)
        raise AssertionError(f"no button says {label}: {self.chats[chat]}")

    def accept(self, chat: str, message: OutboundMessage, key: str) -> str:
        messages = self.chats.setdefault(chat, [])
        if self.abilities.dedupes_sends:
            for each in messages:
                if each.key == key:
                    return each.id
        self.send_count += 1
        text = f"(again) {message.text}" if message.is_again else message.text
        messages.append(ShownMessage(f"p{self.send_count}", key, text, message))
        return messages[-1].id


class FakeChatChannel:
    """A channel that is a client of the app."""

    def __init__(self, chat_app: FakeChatApp) -> None:
        self.app = chat_app
        self.name = chat_app.name
        self.abilities = chat_app.abilities

    async def listen(self, receiver: InboundReceiver) -> None:
        while True:
            self.app.updated.clear()
            while self.app.unread:
                # Only what was taken is forgotten.
                inbound = self.app.unread[0]
                await receiver(inbound)
                self.app.unread.remove(inbound)
            await self.app.updated.wait()

    async def send(self, chat: Chat, message: OutboundMessage, key: str) -> str:
        fault = self.app.faults.pop(0) if self.app.faults else None
        await self._misbehave(fault, lambda: self.app.accept(chat.chat, message, key))
        if self.app.hold is not None:
            self.app.hold_reached.set()
            await self.app.hold.wait()
        return self.app.accept(chat.chat, message, key)

    async def edit(self, chat: Chat, platform_id: str, message: OutboundMessage) -> None:
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
        self.app.typing_count += 1

    async def fetch(self, file: FileRef) -> bytes:
        await self._misbehave(self.app.fetch_faults.pop(0) if self.app.fetch_faults else None, lambda: None)
        return self.app.files[file.ref]

    async def health(self) -> ChannelHealth:
        return (
            ChannelHealth(True, "It answers.")
            if self.app.is_healthy
            else ChannelHealth(False, "It does not.")
        )

    async def close(self) -> None:
        return


class ChannelHarness:
    """A gateway over an engine and a chat app, with helpers for tests."""

    def __init__(
        self,
        engine_app: AppHarness,
        chat_app: FakeChatApp,
        gateway: ChannelWorkers,
        operator_messages: list[str],
    ) -> None:
        self.engine_app = engine_app
        self.store: Store = engine_app.store
        self.chat_app = chat_app
        self.gateway = gateway
        self.operator_messages = operator_messages
        """The notices for the operator."""

    async def wait_for_texts(self, *texts: str, chat: str = "42") -> None:
        """Wait until the chat shows exactly these."""

        async def shows_texts() -> bool:
            return self.chat_app.texts(chat) == list(texts)

        try:
            await self.engine_app.wait_until(shows_texts)
        except AssertionError:
            raise AssertionError(f"{chat} shows {self.chat_app.texts(chat)}, not {list(texts)}") from None

    async def wait_until_idle(self) -> None:
        """Wait until every update is handled and every answer delivered."""

        async def is_idle() -> bool:
            name = self.chat_app.name
            if self.chat_app.unread or await self.store.received(name, 1) or await self.store.active_runs():
                return False
            for route in await self.store.routes(name):
                rows = await self.store.deliveries(route.chat.route, 100)
                if any(row.state in ("waiting", "sending", "changed") for row in rows):
                    return False
                if route.session_id and route.cursor < await self.store.head(route.session_id):
                    return False
            return True

        await self.engine_app.wait_until(
            is_idle, f"quiet in {self.chat_app.name}: {self.chat_app.chats}, {self.operator_messages}"
        )

    async def wait_for_buttons(self, chat: str = "42") -> None:
        """Wait until the chat shows a button."""

        async def has_buttons() -> bool:
            return any(each.body.buttons for each in self.chat_app.chats.get(chat, []))

        await self.engine_app.wait_until(
            has_buttons, f"a question in {self.chat_app.chats}, {self.operator_messages}"
        )

    async def session_id(self, chat: str = "42") -> Any:
        """Return the session of a chat."""
        route = await self.store.route(Chat(self.chat_app.name, "dm", chat).route)
        assert route is not None
        return route.session_id


def make_gateway(
    engine_app: AppHarness, chat_app: FakeChatApp, operator_messages: list[str], **options: Any
) -> ChannelWorkers:
    clock = SystemClock()
    store, engine = options.pop("store", engine_app.store), options.pop("engine", engine_app.engine)
    return ChannelWorkers(
        store, engine, [options.pop("channel", FakeChatChannel(chat_app))],
        Pairing(engine_app.store, clock, lambda bits: 12_345), clock, engine_app.ids, lambda: 0.0,
        retry_ms=options.pop("retry_ms", 20), notify=operator_messages.append, **options,
    )  # fmt: skip


@asynccontextmanager
async def channel_harness(
    engine_app: AppHarness, chat_app: FakeChatApp | None = None, **options: Any
) -> AsyncIterator[ChannelHarness]:
    """Run a gateway to which Ada may write."""
    chat_app = chat_app or FakeChatApp()
    operator_messages: list[str] = []
    await Pairing(engine_app.store, SystemClock(), lambda bits: 1).allow(Sender(chat_app.name, ADA, "Ada", 0))
    gateway = make_gateway(engine_app, chat_app, operator_messages, **options)
    await gateway.start()
    try:
        yield ChannelHarness(engine_app, chat_app, gateway, operator_messages)
    finally:
        await gateway.stop(0.0)
    for message in (each for chat in chat_app.chats.values() for each in chat):
        assert not INTERNAL_TERMS.search(message.text), message.text
