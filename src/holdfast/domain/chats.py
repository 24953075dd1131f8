"""Chats in chat apps: their routes, inbound updates and deliveries.

A *route* is one chat (or one thread of it) as one agent serves it; it leads to one conversation at a time.
"""

import re
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Failure
from holdfast.domain.ids import ProcessId, Seq, SessionId

ChatKind = Literal["dm", "group"]
InboundState = Literal["received", "assigned", "done"]
DeliveryKind = Literal["answer", "question", "notice", "reply"]
DeliveryState = Literal["waiting", "sending", "sent", "changed", "in_doubt", "dropped"]
"""`changed`: it was sent and has to be edited since; an edit may be repeated."""
POISON_MESSAGE = "failed_alone"
"""The failure code of a delivery that the app refuses although it answers: later ones may pass it."""
TERMINAL_KEY = "terminal:"
"""The prefix of the keys of messages typed in a terminal: chats show the origin of a message."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_NUMBER_MAX = 2**53 - 1
"""The largest integer that every JSON reader can represent."""


class Chat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chat as its app names it. `thread` is a topic within it, if any."""

    channel: str
    kind: ChatKind
    chat: str
    thread: str = ""
    agent: str = ""

    @property
    def route(self) -> str:
        """The session key: `agent:NAME:CHANNEL:KIND:CHAT[:THREAD]`."""
        key = f"agent:{self.agent or 'main'}:{self.channel}:{self.kind}:{self.chat}"
        return f"{key}:{self.thread}" if self.thread else key


class FileRef(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that the app stores until it is fetched."""

    ref: str
    name: str = ""
    media_type: str = ""
    size_bytes: int = 0


class InboundUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """An update from a chat app. `update_id` is the app's own; a repeated id is a repeated update.

    `press` is the data of a button; `addressed`: in a group, the message was meant for the agent. Only the
    app itself can set `moved_from`.
    """

    chat: Chat
    update_id: str
    sender: str
    sender_name: str = ""
    text: str = ""
    files: tuple[FileRef, ...] = ()
    press: str = ""
    addressed: bool = True
    at: Instant = 0
    moved_from: str = ""
    """The app's id of the chat that this one replaced; such an update carries no message."""

    @property
    def is_for_agent(self) -> bool:
        """Return whether the message is meant for the agent."""
        return self.chat.kind == "dm" or self.addressed


def sanitize(inbound: InboundUpdate) -> InboundUpdate:
    """Return `inbound` with lone surrogates replaced and numbers clamped, so that it can be stored."""
    files = tuple(
        FileRef(
            _replace_surrogates(file.ref),
            _replace_surrogates(file.name),
            _replace_surrogates(file.media_type),
            _clamp(file.size_bytes),
        )
        for file in inbound.files
    )
    return replace(
        inbound,
        sender=_replace_surrogates(inbound.sender), sender_name=_replace_surrogates(inbound.sender_name),
        text=_replace_surrogates(inbound.text), files=files, press=_replace_surrogates(inbound.press),
        at=_clamp(inbound.at),
    )  # fmt: skip


def _replace_surrogates(text: str) -> str:
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def _clamp(number: int) -> int:
    return min(max(number, 0), _NUMBER_MAX)


class InboundRow(msgspec.Struct, frozen=True):
    """An inbound update until it is handled.

    The row records the conversation that it is for and that conversation's head (`expect`) before anything
    else happens: a retry does the same, or finds it done.
    """

    no: int
    inbound: InboundUpdate
    state: InboundState
    received_at: Instant
    session_id: SessionId = SessionId("")
    expect: Seq = 0


class RouteRow(msgspec.Struct, frozen=True):
    """The state of a route: its conversation, earlier ones (newest last), and how far it was delivered."""

    chat: Chat
    session_id: SessionId
    sessions: tuple[SessionId, ...] = ()
    cursor: Seq = 0
    touched_at: Instant = 0


class Button(msgspec.Struct, frozen=True):
    text: str
    press: str


class OutboundMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a chat app: Markdown, buttons below it, files by blob with their names."""

    text: str = ""
    buttons: tuple[Button, ...] = ()
    files: tuple[str, ...] = ()
    is_again: bool = False
    """It may be a duplicate, and its text says so."""
    names: tuple[str, ...] = ()
    is_taken_back: bool = False
    """It was retracted, and its text says so."""
    before_mark: str = ""
    """The text without that mark."""

    @property
    def named_files(self) -> list[tuple[str, str]]:
        """The files with their names, empty if unknown."""
        return list(zip(self.files, (*self.names, *[""] * len(self.files)), strict=False))


class NewDelivery(msgspec.Struct, frozen=True):
    """A message to deliver. `source` and `piece` identify it: a repeated plan yields the same delivery."""

    source: str
    piece: int
    kind: DeliveryKind
    body: OutboundMessage


class DeliveryRow(msgspec.Struct, frozen=True):
    """A delivery, recorded before its first try. `platform_id` is the app's own id of the message.

    `retry_at` is the earliest time of the next try; while a process sends it (`process_id`), the start of
    that.
    """

    n: int
    source: str
    piece: int
    kind: DeliveryKind
    body: OutboundMessage
    state: DeliveryState
    made_at: Instant
    platform_id: str = ""
    attempts: int = 0
    process_id: ProcessId | None = None
    retry_at: Instant = 0
    failure: Failure | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether no try is left: it was sent in its final form, or abandoned."""
        return self.state in ("sent", "in_doubt", "dropped")


BlockedDelivery = tuple[str, DeliveryRow, DeliveryRow]
"""A route's key, its delivery that failed with POISON_MESSAGE, and the next one."""
