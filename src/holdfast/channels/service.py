"""Manage the channels of a running server: list and test them, connect a bot, receive calls."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.channels.access import TELEGRAM, TOKEN_VARIABLE, WEBHOOK, StoredChannelAccess
from holdfast.channels.info import ChannelInfo, ChannelRefused, ChannelTestResult, NotListening
from holdfast.channels.pairing import Pairing
from holdfast.channels.ports import Channel, ChannelFailure
from holdfast.channels.telegram.bot_file import SavedTelegramBot, read_bot, write_bot
from holdfast.channels.worker import ChannelWorkers
from holdfast.domain.chats import InboundUpdate
from holdfast.domain.errors import HoldfastError, NoSuchChannel
from holdfast.domain.secrets import SecretMask
from holdfast.settings.info import CannotEditSettings, SettingFixed
from holdfast.settings.settings import ConfigError, Settings

SECRET_HEADER = "x-telegram-bot-api-secret-token"


class TelegramBot(Channel, Protocol):
    """A Telegram bot that can receive webhook calls."""

    @property
    def secret(self) -> str: ...

    def check(self, secret_header: str) -> None: ...

    async def receive_update(self, body: bytes, secret_header: str) -> None: ...


class CallableChannel(Channel, Protocol):
    """A channel that receives signed calls."""

    def check(self, headers: Mapping[str, str]) -> None: ...

    def parse_call(self, headers: Mapping[str, str], body: bytes) -> InboundUpdate: ...


class ChannelFactories(msgspec.Struct, frozen=True):
    """Create channels. Both may block and raise ConfigError; `telegram` may raise ChannelFailure too."""

    telegram: Callable[[str], TelegramBot]
    webhook: Callable[[], CallableChannel | None]


class RunningChannelService(StoredChannelAccess):
    """The channel service. Belongs to one event loop. Adds each bot token that it receives to `mask`."""

    def __init__(
        self,
        workers: ChannelWorkers,
        pairing: Pairing,
        settings: Settings,
        environ: Mapping[str, str],
        mask: SecretMask,
        factories: ChannelFactories,
    ) -> None:
        super().__init__(pairing, settings, environ)
        self._workers = workers
        self._mask = mask
        self._factories = factories
        self._lock = asyncio.Lock()
        self._bot: TelegramBot | None = None
        self._webhook: CallableChannel | None = None
        self._startup_error = ""
        """The reason why the configured bot could not be created."""

    async def open(self) -> None:
        """Create the configured channels without serving them. Raises ConfigError, OSError."""
        self._webhook = await asyncio.to_thread(self._factories.webhook)
        if self._webhook is not None:
            self._workers.add(self._webhook)
        if self._settings.telegram != "off":
            try:
                if token := self._token or await asyncio.to_thread(_saved_token, self._settings.data):
                    self._attach_bot(await self._build_bot(token))
            except ChannelRefused as error:
                self._startup_error = str(error.fields["why"])

    async def start(self) -> None:
        """Serve every channel. Start the engine first."""
        await self._workers.start()

    async def stop(self, within_s: float) -> None:
        """Stop every channel; running sends may take `within_s`. A second call does nothing."""
        await self._workers.stop(within_s)

    def list_channels(self) -> Sequence[ChannelInfo]:
        states = {state.name: state for state in self._workers.states()}
        found = []
        for each in self.configured_channels():
            state = states.get(each.name)
            if state is None:
                startup_error = self._startup_error if each.name == TELEGRAM else ""
                found.append(
                    msgspec.structs.replace(each, last_error=self._mask.mask_with_patterns(startup_error))
                )
                continue
            found.append(
                ChannelInfo(
                    each.name, True, each.fixed, state.serving, state.last_seen_at,
                    self._mask.mask_with_patterns(state.last_error), state.last_error_at,
                    state.received, state.waiting,
                    {str(outcome): count for outcome, count in state.delivered.items()},
                    self._mask.mask_with_patterns(state.undelivered), state.undelivered_at,
                )
            )  # fmt: skip
        return found

    async def test(self, name: str) -> ChannelTestResult:
        health = await self._workers.test(name)
        return ChannelTestResult(health.ok, self._mask.mask_with_patterns(health.detail))

    async def connect_telegram(self, token: str) -> None:
        self._check_free()
        if self._settings.telegram == "off":
            raise ChannelRefused(why="the setting telegram is off; leave it out and start the server again")
        async with self._lock:
            bot = await self._build_bot(token.strip())
            try:
                health = await bot.health()
                if not health.ok:
                    raise ChannelRefused(why=self._mask.mask_with_patterns(health.detail))
                await self._save(SavedTelegramBot(token.strip()))
            except BaseException:
                await bot.close()
                raise
            await self._detach_bot()
            self._attach_bot(bot)

    async def disconnect_telegram(self) -> None:
        self._check_free()
        async with self._lock:
            await self._save(None)
            await self._detach_bot()

    def check_call(self, name: str, headers: Mapping[str, str]) -> None:
        if name == TELEGRAM and self._bot is not None:
            self._bot.check(headers.get(SECRET_HEADER, ""))
        elif name == WEBHOOK and self._webhook is not None:
            self._webhook.check(headers)
        else:
            raise NoSuchChannel(name=name)

    async def receive_call(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        if name == TELEGRAM and self._bot is not None:
            try:
                await self._bot.receive_update(body, headers.get(SECRET_HEADER, ""))
            except ChannelFailure:
                raise NotListening(name=name) from None
        elif name == WEBHOOK and self._webhook is not None:
            inbound = self._webhook.parse_call(headers, body)
            await self._workers.receiver_for(name)(inbound)
        else:
            raise NoSuchChannel(name=name)

    def _check_free(self) -> None:
        if self._token:
            raise SettingFixed(name="The bot's token", where=f"in the environment as {TOKEN_VARIABLE}")

    async def _build_bot(self, token: str) -> TelegramBot:
        """Return a bot with that token. Raises ChannelRefused."""
        self._mask.add(token, token.partition(":")[2])
        try:
            bot = await asyncio.to_thread(self._factories.telegram, token)
        except ChannelFailure as error:
            raise ChannelRefused(why=self._mask.mask_with_patterns(str(error.fields["detail"]))) from None
        except HoldfastError as error:
            raise ChannelRefused(why=self._mask.mask_with_patterns(str(error))) from None
        self._mask.add(bot.secret)
        return bot

    def _attach_bot(self, bot: TelegramBot) -> None:
        self._bot, self._startup_error = bot, ""
        self._workers.add(bot)

    async def _detach_bot(self) -> None:
        if self._bot is not None:
            self._bot = None
            await self._workers.remove(TELEGRAM)

    async def _save(self, bot: SavedTelegramBot | None) -> None:
        folder = self._settings.data
        try:
            await asyncio.to_thread(write_bot, folder, bot)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=folder, why=why) from None


def _saved_token(folder: Path) -> str:
    """Return the saved token; empty if there is none. Raises ChannelRefused."""
    try:
        saved = read_bot(folder)
    except ConfigError as error:
        raise ChannelRefused(why=str(error)) from None
    return saved.token if saved is not None else ""
