"""Chats in chat apps: who said what where, which conversation that is, and what goes back to them.

A *route* is one chat (or one thread of it) as one agent serves it; it is at one conversation at a time.
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
"""`changed`: it was sent, and is to say something else since: an edit, which may be repeated."""
POISON_MESSAGE = "failed_alone"
"""Why a delivery waits that the app cannot take although it answers: what is behind it may pass it by."""
TERMINAL_KEY = "terminal:"
"""How the keys of messages begin that were typed in a terminal: chats show where something was said."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_NUMBER_MAX = 2**53 - 1
"""What every reader of JSON can hold."""


class Chat(msgspec.Struct, frozen=True, omit_defaults=True):
    """A chat as its app names it. `thread` is a topic within it, if it has any."""

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
    """A file that lies with the app until it is fetched."""

    ref: str
    name: str = ""
    media_type: str = ""
    size_bytes: int = 0


class InboundUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that came from a chat app. `update_id` is the app's own: the same again is the same thing.

    `press` is what a button carries; `addressed`: in a group, the agent was meant. No person can say
    `moved_from`: it is the app's own word.
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
    """The app's name for the chat whose place this one has taken; nothing was said then."""

    @property
    def is_for_agent(self) -> bool:
        """Whether it was said to the agent."""
        return self.chat.kind == "dm" or self.addressed


def sanitize(inbound: InboundUpdate) -> InboundUpdate:
    """`inbound` as it can be kept: halves of characters, and times that no clock shows, come in as well."""
    files = tuple(
        FileRef(
            _replace_surrogates(each.ref),
            _replace_surrogates(each.name),
            _replace_surrogates(each.media_type),
            _bounded(each.size_bytes),
        )
        for each in inbound.files
    )
    return replace(
        inbound, sender=_replace_surrogates(inbound.sender), sender_name=_replace_surrogates(inbound.sender_name),
        text=_replace_surrogates(inbound.text), files=files, press=_replace_surrogates(inbound.press), at=_bounded(inbound.at),
    )  # fmt: skip


def _replace_surrogates(text: str) -> str:
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)


def _bounded(number: int) -> int:
    return min(max(number, 0), _NUMBER_MAX)


class InboundRow(msgspec.Struct, frozen=True):
    """Something received, until it is dealt with.

    Before anything is done for it, it is written down which conversation it is for and where that stood
    (`expect`): whoever has to do it again does the same, or finds it done.
    """

    no: int
    inbound: InboundUpdate
    state: InboundState
    received_at: Instant
    session_id: SessionId = SessionId("")
    expect: Seq = 0


class RouteRow(msgspec.Struct, frozen=True):
    """Where a chat is: its conversation, those that it has had, the newest last, and how far it was told."""

    chat: Chat
    session_id: SessionId
    sessions: tuple[SessionId, ...] = ()
    cursor: Seq = 0
    touched_at: Instant = 0


class Button(msgspec.Struct, frozen=True):
    text: str
    press: str


class OutboundMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a chat app: Markdown, buttons below it, files by their blob and what they are called."""

    text: str = ""
    buttons: tuple[Button, ...] = ()
    files: tuple[str, ...] = ()
    is_again: bool = False
    """It may have been sent before, and says so."""
    names: tuple[str, ...] = ()
    is_taken_back: bool = False
    """It counts no more, and says so."""
    before_mark: str = ""
    """The text without what says so."""

    @property
    def named_files(self) -> list[tuple[str, str]]:
        """Each file with its name, empty where that is not known."""
        return list(zip(self.files, (*self.names, *[""] * len(self.files)), strict=False))


class NewDelivery(msgspec.Struct, frozen=True):
    """Something to be said in a chat. `source` and `piece` name it: planned again, it is the same one."""

    source: str
    piece: int
    kind: DeliveryKind
    body: OutboundMessage


class DeliveryRow(msgspec.Struct, frozen=True):
    """A message of a chat app, recorded before it is tried. `platform_id` is the app's own name for it.

    `retry_at`: not before that; while a process has it (`process_id`), when that began.
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
        """Whether nothing is left to be tried: it was sent as it is to read, or was let be."""
        return self.state in ("sent", "in_doubt", "dropped")


BlockedDelivery = tuple[str, DeliveryRow, DeliveryRow]
"""A chat's key, its delivery that FAILED_ALONE, and the one behind that."""
