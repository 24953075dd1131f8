"""Chat apps over HTTP: how they fare, connecting a bot, who may speak; and the doors that apps call at.

Those doors need no sign-in: what comes through them is looked at only once it is shown to be the app's own.
"""

import asyncio
from collections import Counter
from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.exceptions import HTTPException
from litestar.params import FromPath

from holdfast.auth.login_throttle import Tries
from holdfast.channels.info import (
    ChannelDesk,
    ChannelRefused,
    ChannelTold,
    ChannelTried,
    NotListening,
    SenderTold,
    StrangerTold,
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
from holdfast.domain.limits import CALL_S_MAX, CALLS_AT_ONCE_MAX, WEBHOOK_BODY_BYTES_MAX
from holdfast.http.authenticator import address_of
from holdfast.http.errors import TooManyTries, TooSlow
from holdfast.http.openapi.responses import answers, body
from holdfast.http.schemas.requests import Sent
from holdfast.settings.info import CannotEditSettings, SettingFixed

CALLED_PATHS = ("/api/channels/telegram", "/api/channels/webhook")
"""Where chat apps call."""
_TOKEN_CHARS_MAX = 200
_CODE_CHARS_MAX = 40
_UNSHOWN = 401


class NewBot(Sent, frozen=True):
    """A Telegram bot, by the token that BotFather gave."""

    token: Annotated[str, msgspec.Meta(min_length=1, max_length=_TOKEN_CHARS_MAX)]

    def __repr__(self) -> str:
        return "NewBot(…)"


class PairingCode(Sent, frozen=True):
    """What a stranger was told."""

    code: Annotated[str, msgspec.Meta(min_length=1, max_length=_CODE_CHARS_MAX)]


class ChannelList(msgspec.Struct, frozen=True):
    """Every channel that there can be."""

    channels: tuple[ChannelTold, ...]


class StrangerList(msgspec.Struct, frozen=True):
    """Who waits to be let in, the first first. Only they have their codes."""

    waiting: tuple[StrangerTold, ...]


class SenderList(msgspec.Struct, frozen=True):
    """Who may speak, the first first."""

    senders: tuple[SenderTold, ...]


class Kept(msgspec.Struct, frozen=True):
    """What was told is on disk, or was there already."""

    kept: bool = True


_AT = 1_760_000_000_000
_LIST = ChannelList((
    ChannelTold("telegram", True, False, True, _AT, "", 0, 12, 0, {"sent": 12, "edited": 30}),
    ChannelTold("webhook", False, True),
))  # fmt: skip
_STRANGER = StrangerTold("telegram", "77", "Ada", _AT, _AT + 3_600_000)
_SENDER = SenderTold("telegram", "77", "Ada", _AT + 60_000)


class ChannelRoutes:
    """`/api/channels`, `/api/pairing` and `/api/senders`."""

    def __init__(self, desk: ChannelDesk, tries: Tries) -> None:
        """`tries` counts the calls that no chat app signed."""
        self._desk = desk
        self._tries = tries
        self._reading: Counter[str] = Counter()
        """How many calls of each chat app are being read."""

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        refusals: tuple[type[HoldfastError], ...] = (ChannelRefused, SettingFixed, CannotEditSettings)
        tried = ChannelTried(True, "@holdfast_bot")
        told = answers(200, ChannelList, _LIST, *refusals, sends=True)
        asked = answers(200, ChannelTried, tried, NoSuchChannel, sends=True)
        waiting = answers(200, StrangerList, StrangerList((_STRANGER,)))
        let_in = answers(200, SenderTold, _SENDER, NoSuchCode, TooManyCodes, sends=True)
        senders = answers(200, SenderList, SenderList((_SENDER,)))
        gone = answers(204, None, None, NoSuchSender, sends=True)
        return [
            get("/api/channels", responses=answers(200, ChannelList, _LIST))(self.channels),
            post("/api/channels/{name:str}/test", status_code=200, responses=asked)(self.test),
            post("/api/channels/telegram/connect", status_code=200, responses=told)(self.connect),
            post("/api/channels/telegram/disconnect", status_code=200, responses=told)(self.disconnect),
            get("/api/pairing", responses=waiting)(self.waiting),
            post("/api/pairing", status_code=200, responses=let_in)(self.pair),
            get("/api/senders", responses=senders)(self.senders),
            delete("/api/senders/{channel:str}/{sender:str}", responses=gone)(self.revoke),
            *self._called(),
        ]

    def _called(self) -> list[Any]:
        kept = (Kept, Kept(), NoSuchChannel, NotListening, TooManyCalls, TooSlow)
        most = WEBHOOK_BODY_BYTES_MAX
        by_telegram, by_webhook = answers(200, *kept, sends=True), answers(202, *kept, sends=True)
        telegram, webhook = CALLED_PATHS
        return [
            post(telegram, status_code=200, responses=by_telegram, request_max_body_size=most)(self.telegram),
            post(webhook, status_code=202, responses=by_webhook, request_max_body_size=most)(self.webhook),
        ]

    async def channels(self) -> ChannelList:
        """Every chat app: whether it is connected, what came and went, what went wrong last."""
        return ChannelList(tuple(self._desk.told()))

    async def test(self, name: FromPath[str]) -> ChannelTried:
        """Ask the app itself, and say exactly what is wrong."""
        return await self._desk.test(name)

    async def connect(self, data: Annotated[NewBot, body({"token": "123456:…"})]) -> ChannelList:
        """Have a Telegram bot answer from now on, also after a restart. It is tried first."""
        await self._desk.connect_telegram(data.token)
        return await self.channels()

    async def disconnect(self) -> ChannelList:
        """Forget the Telegram bot that was connected here."""
        await self._desk.disconnect_telegram()
        return await self.channels()

    async def waiting(self) -> StrangerList:
        """Who wrote without being known, and waits to be let in."""
        return StrangerList(tuple(await self._desk.waiting()))

    async def pair(self, data: Annotated[PairingCode, body({"code": "K7QM-2XRD"})]) -> SenderTold:
        """Let in whoever was told this code."""
        return await self._desk.confirm(data.code)

    async def senders(self) -> SenderList:
        """Everybody who may speak in chat apps."""
        return SenderList(tuple(await self._desk.senders()))

    async def revoke(self, channel: FromPath[str], sender: FromPath[str]) -> None:
        """Have somebody speak no longer."""
        await self._desk.revoke(channel, sender)

    async def telegram(self, request: Request[Any, Any, Any]) -> Kept:
        """Where Telegram calls, with the secret that was agreed on, where `telegram` is `webhook`."""
        return await self._hear("telegram", request)

    async def webhook(self, request: Request[Any, Any, Any]) -> Kept:
        """Where programs tell what somebody said, signed by Standard Webhooks. The same id is heard once."""
        return await self._hear("webhook", request)

    async def _hear(self, name: str, request: Request[Any, Any, Any]) -> Kept:
        headers = {key.decode("latin-1"): value.decode("latin-1") for key, value in request.scope["headers"]}
        try:
            # Whoever cannot be the app has nothing of theirs read.
            self._desk.check_call(name, headers)
            await self._desk.heard(name, headers, await self._read(name, request))
        except HoldfastError as error:
            if error.status == _UNSHOWN:
                self._fail(address_of(request.scope))  # type: ignore[arg-type]
            raise
        return Kept()

    async def _read(self, name: str, request: Request[Any, Any, Any]) -> bytes:
        """All of a call. Raises TooLarge, TooSlow, TooManyCalls."""
        if self._reading[name] >= CALLS_AT_ONCE_MAX:
            raise TooManyCalls(name=name)
        self._reading[name] += 1
        try:
            async with asyncio.timeout(CALL_S_MAX):
                return await request.body()
        except TimeoutError:
            raise TooSlow() from None
        except HTTPException as refusal:
            if refusal.status_code == TooLarge.status:
                size, limit = f"more than {WEBHOOK_BODY_BYTES_MAX}", WEBHOOK_BODY_BYTES_MAX
                raise TooLarge(what="The call", size=size, limit=limit) from None
            raise
        finally:
            self._reading[name] -= 1

    def _fail(self, address: str) -> None:
        """However often others failed, what is signed is heard: it cannot be guessed. Raises TooManyTries."""
        wait_s = self._tries.wait_s(address)
        self._tries.count(address)
        if wait_s:
            raise TooManyTries(seconds=wait_s)
