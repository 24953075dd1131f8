"""Chat apps and who may speak there: the ports of who lets people in and who listens."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import HoldfastError


class ChannelRefused(HoldfastError):
    """This cannot be connected: {why}."""

    code, status = "channel_refused", 400


class NotListening(HoldfastError):
    """Nobody listens to {name} in this process at the moment."""

    code, status = "not_listening", 503
    remedy = "Try again in a moment."


class TooManyCalls(HoldfastError):
    """More calls come in for {name} than are read at once."""

    code, status = "too_many_calls", 503
    remedy = "Try again in a moment."


class ChannelInfo(msgspec.Struct, frozen=True):
    """A way in from a chat app, and how it fares.

    `connected`: it is set up; `fixed`: in the environment or in `holdfast.toml`, so not from here. `serving`:
    this process listens and sends. What is counted is since this process started; `last_error` stays until
    something went well. Times are milliseconds since 1970, 0: never.
    """

    name: str
    connected: bool
    fixed: bool = False
    serving: bool = False
    last_seen_at: Instant = 0
    last_error: str = ""
    last_error_at: Instant = 0
    received: int = 0
    waiting: int = 0
    delivered: dict[str, int] = msgspec.field(default_factory=dict)
    """How many tries to say something ended how."""
    undelivered: str = ""
    """Why the last message that was let be could not be said; it stays."""
    undelivered_at: Instant = 0


class ChannelTestResult(msgspec.Struct, frozen=True):
    """Whether a chat app answers; if not, exactly why not."""

    ok: bool
    detail: str


class PendingSenderInfo(msgspec.Struct, frozen=True):
    """Somebody who wrote and waits to be let in. Only they have the code."""

    channel: str
    sender: str
    name: str
    asked_at: Instant
    expires_at: Instant


class SenderInfo(msgspec.Struct, frozen=True):
    """Somebody who may speak."""

    channel: str
    sender: str
    name: str
    allowed_at: Instant


class ChannelAccess(Protocol):
    """Who may speak in chat apps, and which of those are set up."""

    def configured_channels(self) -> Sequence[ChannelInfo]:
        """Every channel that there can be, and whether it is set up."""

    async def pending_senders(self) -> Sequence[PendingSenderInfo]:
        """Who waits to be let in, the first first."""

    async def confirm(self, code: str) -> SenderInfo:
        """Let in whoever was told this code. Raises NoSuchCode, TooManyCodes."""

    async def senders(self) -> Sequence[SenderInfo]:
        """Who may speak, the first first."""

    async def revoke(self, channel: str, sender: str) -> None:
        """They may not speak from now on. Raises NoSuchSender."""


class ChannelService(ChannelAccess, Protocol):
    """The chat apps of a server while it runs."""

    def list_channels(self) -> Sequence[ChannelInfo]:
        """Every channel and how it fares here."""

    async def test(self, name: str) -> ChannelTestResult:
        """Ask the app itself. Raises NoSuchChannel."""

    async def connect_telegram(self, token: str) -> None:
        """Have a bot answer from now on; it is tried first, and the token is never told again.

        Raises ChannelRefused, SettingFixed, CannotEditSettings.
        """

    async def disconnect_telegram(self) -> None:
        """Forget the bot. Raises SettingFixed, CannotEditSettings."""

    def check_call(self, name: str, headers: Mapping[str, str]) -> None:
        """Whether a chat app may be calling, by what is known before its call is read. Raises as `heard`."""

    async def receive_call(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """A chat app has called; returns once what it told is kept. Header names are in lower case.

        Raises NoSuchChannel, NotListening, and with the status 401 whatever says that it is not that app.
        """
