"""Show and connect chat apps over HTTP, pair their senders, and receive the calls of apps.

The calls of apps need no sign-in: the channel verifies the app's secret or signature before it uses the body.
"""

import asyncio
from collections import Counter
from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath

from holdfast.auth.login_throttle import LoginThrottle
from holdfast.channels.info import (
    ChannelInfo,
    ChannelRefused,
    ChannelService,
    ChannelTestResult,
    NotListening,
    PendingSenderInfo,
    SenderInfo,
    TooManyCalls,
)
from holdfast.domain.errors import (
    HoldfastError,
    NoSuchChannel,
    NoSuchCode,
    NoSuchSender,
    TooLarge,
    TooManyCodes,
)
from holdfast.domain.limits import WEBHOOK_BODY_BYTES_MAX, WEBHOOK_CALL_S_MAX, WEBHOOK_CALLS_AT_ONCE_MAX
from holdfast.http.authenticator import client_address
from holdfast.http.errors import RequestTooSlow, TooManyAttempts
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.requests import RequestBody
from holdfast.settings.info import CannotEditSettings, SettingFixed

INBOUND_PATHS = ("/api/channels/telegram", "/api/channels/webhook")
"""The paths that chat apps call."""
_TOKEN_CHARS_MAX = 200
_CODE_CHARS_MAX = 40
_UNAUTHORIZED = 401


class NewBot(RequestBody, frozen=True):
    """A Telegram bot, by the token that BotFather gave."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=_TOKEN_CHARS_MAX)]

    def __repr__(self) -> str:
        return "NewBot(…)"


class PairingCode(RequestBody, frozen=True):
    """What a stranger was told."""

    code: Annotated[str, msgspec.Meta(min_length=1, max_length=_CODE_CHARS_MAX)]


class ChannelList(msgspec.Struct, frozen=True):
    """Every channel that there can be."""

    channels: tuple[ChannelInfo, ...]


class UnknownSenderList(msgspec.Struct, frozen=True):
    """Who waits to be let in, the first first. Only they have their codes."""

    waiting: tuple[PendingSenderInfo, ...]


class SenderList(msgspec.Struct, frozen=True):
    """Who may speak, the first first."""

    senders: tuple[SenderInfo, ...]


class ChannelCallReceipt(msgspec.Struct, frozen=True):
    """What was told is on disk, or was there already."""

    kept: bool = True


_AT = 1_760_000_000_000
_LIST = ChannelList((
    ChannelInfo("telegram", True, False, True, _AT, "", 0, 12, 0, {"sent": 12, "edited": 30}),
    ChannelInfo("webhook", False, True),
))  # fmt: skip
_UNKNOWN_SENDER = PendingSenderInfo("telegram", "77", "Ada", _AT, _AT + 3_600_000)
_SENDER = SenderInfo("telegram", "77", "Ada", _AT + 60_000)


class ChannelRoutes:
    """Serve `/api/channels`, `/api/pairing` and `/api/senders`."""

    def __init__(self, service: ChannelService, throttle: LoginThrottle) -> None:
        """Create the routes; `throttle` counts the calls that no chat app signed."""
        self._service = service
        self._throttle = throttle
        self._calls_in_progress: Counter[str] = Counter()
        """The number of calls of each chat app whose body is being read."""

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        refusals: tuple[type[HoldfastError], ...] = (ChannelRefused, SettingFixed, CannotEditSettings)
        tried = ChannelTestResult(True, "@holdfast_bot")
        listed = response_specs(200, ChannelList, _LIST, *refusals, has_body=True)
        tested = response_specs(200, ChannelTestResult, tried, NoSuchChannel, has_body=True)
        waiting = response_specs(200, UnknownSenderList, UnknownSenderList((_UNKNOWN_SENDER,)))
        paired = response_specs(200, SenderInfo, _SENDER, NoSuchCode, TooManyCodes, has_body=True)
        senders = response_specs(200, SenderList, SenderList((_SENDER,)))
        gone = response_specs(204, None, None, NoSuchSender, has_body=True)
        return [
            get("/api/channels", responses=response_specs(200, ChannelList, _LIST))(self.channels),
            post("/api/channels/{name:str}/test", status_code=200, responses=tested)(self.test),
            post("/api/channels/telegram/connect", status_code=200, responses=listed)(self.connect),
            post("/api/channels/telegram/disconnect", status_code=200, responses=listed)(self.disconnect),
            get("/api/pairing", responses=waiting)(self.pending_senders),
            post("/api/pairing", status_code=200, responses=paired)(self.pair),
            get("/api/senders", responses=senders)(self.senders),
            delete("/api/senders/{channel:str}/{sender:str}", responses=gone)(self.revoke),
            *self._inbound_routes(),
        ]

    def _inbound_routes(self) -> list[Any]:
        receipt = (
            ChannelCallReceipt,
            ChannelCallReceipt(),
            NoSuchChannel,
            NotListening,
            TooManyCalls,
            RequestTooSlow,
        )
        body_bytes_max = WEBHOOK_BODY_BYTES_MAX
        by_telegram, by_webhook = (
            response_specs(200, *receipt, has_body=True),
            response_specs(202, *receipt, has_body=True),
        )
        telegram, webhook = INBOUND_PATHS
        return [
            post(telegram, status_code=200, responses=by_telegram, request_max_body_size=body_bytes_max)(
                self.telegram
            ),
            post(webhook, status_code=202, responses=by_webhook, request_max_body_size=body_bytes_max)(
                self.webhook
            ),
        ]

    async def channels(self) -> ChannelList:
        """Every chat app: whether it is connected, what came and went, what went wrong last."""
        return ChannelList(tuple(self._service.list_channels()))

    async def test(self, name: FromPath[str]) -> ChannelTestResult:
        """Ask the app itself, and say exactly what is wrong."""
        return await self._service.test(name)

    async def connect(self, data: Annotated[NewBot, request_body({"token": "123456:…"})]) -> ChannelList:
        """Have a Telegram bot answer from now on, also after a restart. It is tried first."""
        await self._service.connect_telegram(data.token)
        return await self.channels()

    async def disconnect(self) -> ChannelList:
        """Forget the Telegram bot that was connected here."""
        await self._service.disconnect_telegram()
        return await self.channels()

    async def pending_senders(self) -> UnknownSenderList:
        """Who wrote without being known, and waits to be let in."""
        return UnknownSenderList(tuple(await self._service.pending_senders()))

    async def pair(self, data: Annotated[PairingCode, request_body({"code": "K7QM-2XRD"})]) -> SenderInfo:
        """Let in whoever was told this code."""
        return await self._service.confirm(data.code)

    async def senders(self) -> SenderList:
        """Everybody who may speak in chat apps."""
        return SenderList(tuple(await self._service.senders()))

    async def revoke(self, channel: FromPath[str], sender: FromPath[str]) -> None:
        """Have somebody speak no longer."""
        await self._service.revoke(channel, sender)

    async def telegram(self, request: Request[Any, Any, Any]) -> ChannelCallReceipt:
        """Where Telegram calls, with the secret that was agreed on, where `telegram` is `webhook`."""
        return await self._accept_call("telegram", request)

    async def webhook(self, request: Request[Any, Any, Any]) -> ChannelCallReceipt:
        """Where programs tell what somebody said, signed by Standard Webhooks. The same id is heard once."""
        return await self._accept_call("webhook", request)

    async def _accept_call(self, name: str, request: Request[Any, Any, Any]) -> ChannelCallReceipt:
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in request.scope["headers"]}
        try:
            # Checked first: the body of a call that is not the app's is not read at all.
            self._service.check_call(name, headers)
            await self._service.receive_call(name, headers, await self._read_body(name, request))
        except HoldfastError as error:
            if error.status == _UNAUTHORIZED:
                self._record_failure(client_address(request.scope))  # type: ignore[arg-type]
            raise
        return ChannelCallReceipt()

    async def _read_body(self, name: str, request: Request[Any, Any, Any]) -> bytes:
        """Return the body of a call. Raises TooLarge, RequestTooSlow, TooManyCalls."""
        if self._calls_in_progress[name] >= WEBHOOK_CALLS_AT_ONCE_MAX:
            raise TooManyCalls(name=name)
        self._calls_in_progress[name] += 1
        try:
            async with asyncio.timeout(WEBHOOK_CALL_S_MAX):
                return await request.body()
        except TimeoutError:
            raise RequestTooSlow() from None
        except HTTPException as exception:
            if exception.status_code == TooLarge.status:
                size, limit = f"more than {WEBHOOK_BODY_BYTES_MAX}", WEBHOOK_BODY_BYTES_MAX
                raise TooLarge(what="The call", size=size, limit=limit) from None
            raise
        finally:
            self._calls_in_progress[name] -= 1

    def _record_failure(self, address: str) -> None:
        """Count an unsigned call; signed ones are never throttled. Raises TooManyAttempts."""
        wait_s = self._throttle.retry_after_s(address)
        self._throttle.record_attempt(address)
        if wait_s:
            raise TooManyAttempts(seconds=wait_s)
