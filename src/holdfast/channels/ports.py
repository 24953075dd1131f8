"""The port of a chat app: a channel that receives and sends messages."""

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
        """Create the error. `arrived` is None if unknown; `final` means that a retry is useless."""
        super().__init__(channel=channel, detail=detail)
        self.arrived = arrived
        self.retry_after_ms = retry_after_ms
        self.final = final


class FileTooLarge(TooLarge):
    """{what} is too large{size}: at most {limit} can be fetched."""


def file_too_large(file: FileRef, bytes_max: int, size: int = 0) -> FileTooLarge:
    """Return the error for a file over the limit; pass `size` if it is known."""
    name = file.name[:_NAME_CHARS_MAX]
    known = max(size, file.size_bytes)
    return FileTooLarge(
        what=f"The file “{name}”" if name else "The file",
        size=f" ({_megabytes(known)})" if known > bytes_max else "",
        limit=_megabytes(bytes_max),
    )


def _megabytes(size: int) -> str:
    """Return a size in MB, rounded up so that it never equals the limit it exceeds."""
    tenths = -(-size // 100_000)
    return f"{tenths / 10:,.1f} MB".replace(".0 MB", " MB")


class ChannelAbilities(msgspec.Struct, frozen=True):
    """The abilities of an app, as the documentation lists them and the tests assert them."""

    text_chars_max: int
    edits: bool
    buttons: bool
    files: bool
    dedupes_sends: bool
    """A repeated send with the same id creates no second message."""
    dedupes_updates: bool
    """Updates carry ids by which repeats are recognised."""
    edit_every_ms: int
    """The shortest interval between edits of a message that is being written."""


class ChannelHealth(msgspec.Struct, frozen=True):
    ok: bool
    detail: str = ""


class InboundReceiver(Protocol):
    """Receive inbound updates in the order in which they were sent."""

    async def __call__(self, *inbound: InboundUpdate) -> None:
        """Store the updates and return once they are durable: only then may the app forget them.

        Pass updates that arrived together in one call: a batch costs as much as one update.
        """


class Channel(Protocol):
    """One chat app. Every method but `health` may raise ChannelFailure."""

    @property
    def name(self) -> str: ...

    @property
    def abilities(self) -> ChannelAbilities: ...

    async def listen(self, receiver: InboundReceiver) -> None:
        """Pass inbound updates to `take` until cancelled; after a fault, retry with backoff."""

    async def send(self, chat: Chat, message: OutboundMessage, key: str) -> str:
        """Send a message and return the app's id of it. `key` is the same at each retry."""

    async def edit(self, chat: Chat, platform_id: str, message: OutboundMessage) -> None:
        """Replace the content of a message. An edit that changes nothing succeeds."""

    async def show_typing(self, chat: Chat) -> None: ...

    async def fetch(self, file: FileRef) -> bytes:
        """Return the content of a file that a user sent. Also raises TooLarge."""

    async def health(self) -> ChannelHealth:
        """Return the result of a request to the app; never raise."""

    async def close(self) -> None: ...
