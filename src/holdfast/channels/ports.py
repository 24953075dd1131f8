"""What a chat app is to the rest of `channels`: something that messages come from and can be sent to."""

from typing import Protocol

import msgspec

from holdfast.domain.chats import Chat, FileRef, InboundUpdate, OutboundMessage
from holdfast.domain.errors import HoldfastError, TooLarge

_NAME_CHARS_MAX = 80


class ChannelFailure(HoldfastError):
    """{channel}: {detail}."""

    code, status = "channel_failed", 502

    def __init__(
        self,
        *,
        channel: str,
        detail: str,
        arrived: bool | None = False,
        retry_after_ms: int | None = None,
        final: bool = False,
    ) -> None:
        """`arrived` is None where nobody can tell; `final`: trying again is of no use."""
        super().__init__(channel=channel, detail=detail)
        self.arrived = arrived
        self.retry_after_ms = retry_after_ms
        self.final = final


class FileTooLarge(TooLarge):
    """{what} is too large{size}: at most {limit} can be fetched."""


def file_too_large(file: FileRef, bytes_max: int, size: int = 0) -> FileTooLarge:
    """As people are told. `size`: if it is known."""
    name = file.name[:_NAME_CHARS_MAX]
    known = max(size, file.size_bytes)
    return FileTooLarge(
        what=f"The file “{name}”" if name else "The file",
        size=f" ({_megabytes(known)})" if known > bytes_max else "",
        limit=_megabytes(bytes_max),
    )


def _megabytes(size: int) -> str:
    """Rounded up: what is too large never seems to be as large as may be."""
    tenths = -(-size // 100_000)
    return f"{tenths / 10:,.1f} MB".replace(".0 MB", " MB")


class ChannelAbilities(msgspec.Struct, frozen=True):
    """What an app can do, as the documentation lists it and the tests assert it."""

    text_chars_max: int
    edits: bool
    buttons: bool
    files: bool
    dedupes_sends: bool
    """Whether sending the same thing again, under the same id, makes one message."""
    dedupes_updates: bool
    """Whether what it tells has ids by which a repetition is known."""
    edit_every_ms: int
    """How often a message that is being written may be changed."""


class ChannelHealth(msgspec.Struct, frozen=True):
    ok: bool
    detail: str = ""


class InboundReceiver(Protocol):
    """Where what came is handed over, in the order in which it was said."""

    async def __call__(self, *inbound: InboundUpdate) -> None:
        """Returns once all of it is kept for good: only then may the app forget it.

        What came together is best handed over together: it costs as much as one.
        """


class Channel(Protocol):
    """One chat app. Every method but `health` may raise ChannelFailure."""

    @property
    def name(self) -> str: ...

    @property
    def abilities(self) -> ChannelAbilities: ...

    async def listen(self, take: InboundReceiver) -> None:
        """Hand over what comes, until cancelled. Comes back by itself after a fault, with patience."""

    async def send(self, chat: Chat, message: OutboundMessage, key: str) -> str:
        """Say something; returns the app's own id for it. `key` is the same whenever it is tried again."""

    async def edit(self, chat: Chat, platform_id: str, message: OutboundMessage) -> None:
        """Have a message say something else. Saying what it says already is no failure."""

    async def show_typing(self, chat: Chat) -> None: ...

    async def fetch(self, file: FileRef) -> bytes:
        """A file that somebody sent. Raises TooLarge too."""

    async def health(self) -> ChannelHealth:
        """Asks the app itself. Never raises."""

    async def close(self) -> None: ...
