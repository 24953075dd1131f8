"""The ports through which HTTP and the CLI manage channels and their allowed senders."""

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
    """Delivery attempts by outcome."""
    undelivered: str = ""
    """The error of the last message that was dropped; it is never cleared."""
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
    """The allowed senders and the configured channels."""

    def configured_channels(self) -> Sequence[ChannelInfo]:
        """Return every channel and whether it is configured."""

    async def pending_senders(self) -> Sequence[PendingSenderInfo]:
        """Return the senders who wait for approval, the oldest first."""

    async def confirm(self, code: str) -> SenderInfo:
        """Allow the sender who received this code. Raises NoSuchCode, TooManyCodes."""

    async def senders(self) -> Sequence[SenderInfo]:
        """Return the allowed senders, the oldest first."""

    async def revoke(self, channel: str, sender: str) -> None:
        """Remove an allowed sender. Raises NoSuchSender."""


class ChannelService(ChannelAccess, Protocol):
    """The channels of a running server."""

    def list_channels(self) -> Sequence[ChannelInfo]:
        """Return every channel and its state in this process."""

    async def test(self, name: str) -> ChannelTestResult:
        """Return the result of a request to the app. Raises NoSuchChannel."""

    async def connect_telegram(self, token: str) -> None:
        """Verify a bot's token, save it and connect the bot. The token is never returned.

        Raises ChannelRefused, SettingFixed, CannotEditSettings.
        """

    async def disconnect_telegram(self) -> None:
        """Remove the bot. Raises SettingFixed, CannotEditSettings."""

    def check_call(self, name: str, headers: Mapping[str, str]) -> None:
        """Check a call's headers before its body is read. Raises as `receive_call`."""

    async def receive_call(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """Handle a call from a chat app; return once its update is stored. Header names are in lower case.

        Raises NoSuchChannel, NotListening, and an error with status 401 if the call is not from that app.
        """
