"""The chat apps of a server while it runs: which there are, how they fare, connecting a bot."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.channels.access import TELEGRAM, TOKEN_VARIABLE, WEBHOOK, Porter
from holdfast.channels.info import ChannelRefused, ChannelTold, ChannelTried, NotListening
from holdfast.channels.pairing import Pairing
from holdfast.channels.ports import Channel, ChannelFailure
from holdfast.channels.telegram.bot_file import Bot, read_bot, write_bot
from holdfast.channels.worker import Gateway
from holdfast.domain.chats import Inbound
from holdfast.domain.errors import HoldfastError, NoSuchChannel
from holdfast.domain.secrets import Mask
from holdfast.settings.info import CannotEditSettings, SettingFixed
from holdfast.settings.settings import ConfigError, Settings

SECRET_HEADER = "x-telegram-bot-api-secret-token"


class TelegramBot(Channel, Protocol):
    """A bot, and what it needs to be called."""

    @property
    def secret(self) -> str: ...

    def check(self, secret_header: str) -> None: ...

    async def arrived(self, body: bytes, secret_header: str) -> None: ...


class Called(Channel, Protocol):
    """A channel that programs call."""

    def check(self, headers: Mapping[str, str]) -> None: ...

    def heard(self, headers: Mapping[str, str], body: bytes) -> Inbound: ...


class Makes(msgspec.Struct, frozen=True):
    """How channels are made. Both may block, and raise ConfigError; a bot also raises ChannelFailure."""

    telegram: Callable[[str], TelegramBot]
    webhook: Callable[[], Called | None]


class Channels(Porter):
    """Belongs to one event loop. Whatever token it is given, `mask` knows from then on."""

    def __init__(
        self,
        gateway: Gateway,
        pairing: Pairing,
        settings: Settings,
        environ: Mapping[str, str],
        mask: Mask,
        makes: Makes,
    ) -> None:
        super().__init__(pairing, settings, environ)
        self._gateway = gateway
        self._mask = mask
        self._makes = makes
        self._turn = asyncio.Lock()
        self._bot: TelegramBot | None = None
        self._called: Called | None = None
        self._broken = ""
        """Why there is no bot although there is a token."""

    async def open(self) -> None:
        """Make what is set up, without serving it yet. Raises ConfigError, OSError."""
        self._called = await asyncio.to_thread(self._makes.webhook)
        if self._called is not None:
            self._gateway.add(self._called)
        if self._settings.telegram != "off":
            try:
                if token := self._token or await asyncio.to_thread(_saved_token, self._settings.data):
                    self._take_on(await self._made(token))
            except ChannelRefused as error:
                self._broken = str(error.fields["why"])

    async def start(self) -> None:
        """Serve every channel. The engine must be working."""
        await self._gateway.start()

    async def stop(self, within_s: float) -> None:
        """What is being sent has so long to arrive. A second time does nothing."""
        await self._gateway.stop(within_s)

    def told(self) -> Sequence[ChannelTold]:
        states = {state.name: state for state in self._gateway.states()}
        found = []
        for each in self.given():
            state = states.get(each.name)
            if state is None:
                broken = self._broken if each.name == TELEGRAM else ""
                found.append(msgspec.structs.replace(each, last_error=self._mask.shapes(broken)))
                continue
            found.append(
                ChannelTold(
                    each.name, True, each.fixed, state.serving, state.last_seen_at,
                    self._mask.shapes(state.last_error), state.last_error_at, state.received, state.waiting,
                    {str(outcome): count for outcome, count in state.delivered.items()},
                    self._mask.shapes(state.undelivered), state.undelivered_at,
                )
            )  # fmt: skip
        return found

    async def test(self, name: str) -> ChannelTried:
        health = await self._gateway.test(name)
        return ChannelTried(health.ok, self._mask.shapes(health.detail))

    async def connect_telegram(self, token: str) -> None:
        self._check_free()
        if self._settings.telegram == "off":
            raise ChannelRefused(why="the setting telegram is off; leave it out and start the server again")
        async with self._turn:
            bot = await self._made(token.strip())
            try:
                health = await bot.health()
                if not health.ok:
                    raise ChannelRefused(why=self._mask.shapes(health.detail))
                await self._save(Bot(token.strip()))
            except BaseException:
                await bot.close()
                raise
            await self._let_go()
            self._take_on(bot)

    async def disconnect_telegram(self) -> None:
        self._check_free()
        async with self._turn:
            await self._save(None)
            await self._let_go()

    def check_call(self, name: str, headers: Mapping[str, str]) -> None:
        if name == TELEGRAM and self._bot is not None:
            self._bot.check(headers.get(SECRET_HEADER, ""))
        elif name == WEBHOOK and self._called is not None:
            self._called.check(headers)
        else:
            raise NoSuchChannel(name=name)

    async def heard(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        if name == TELEGRAM and self._bot is not None:
            try:
                await self._bot.arrived(body, headers.get(SECRET_HEADER, ""))
            except ChannelFailure:
                raise NotListening(name=name) from None
        elif name == WEBHOOK and self._called is not None:
            inbound = self._called.heard(headers, body)
            await self._gateway.take(name)(inbound)
        else:
            raise NoSuchChannel(name=name)

    def _check_free(self) -> None:
        if self._token:
            raise SettingFixed(name="The bot's token", where=f"in the environment as {TOKEN_VARIABLE}")

    async def _made(self, token: str) -> TelegramBot:
        """A bot with that token. Raises ChannelRefused."""
        self._mask.learn(token, token.partition(":")[2])
        try:
            bot = await asyncio.to_thread(self._makes.telegram, token)
        except ChannelFailure as error:
            raise ChannelRefused(why=self._mask.shapes(str(error.fields["detail"]))) from None
        except HoldfastError as error:
            raise ChannelRefused(why=self._mask.shapes(str(error))) from None
        self._mask.learn(bot.secret)
        return bot

    def _take_on(self, bot: TelegramBot) -> None:
        self._bot, self._broken = bot, ""
        self._gateway.add(bot)

    async def _let_go(self) -> None:
        if self._bot is not None:
            self._bot = None
            await self._gateway.remove(TELEGRAM)

    async def _save(self, bot: Bot | None) -> None:
        folder = self._settings.data
        try:
            await asyncio.to_thread(write_bot, folder, bot)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=folder, why=why) from None


def _saved_token(folder: Path) -> str:
    """The token that was connected; empty: none. Raises ChannelRefused."""
    try:
        saved = read_bot(folder)
    except ConfigError as error:
        raise ChannelRefused(why=str(error)) from None
    return saved.token if saved is not None else ""
