"""Manage allowed senders and list configured channels, without a running server."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.channels.info import ChannelInfo, PendingSenderInfo, SenderInfo
from holdfast.channels.pairing import Pairing, Sender
from holdfast.channels.telegram.bot_file import BOT_FILE
from holdfast.settings.settings import Settings

TOKEN_VARIABLE = "TELEGRAM_BOT_TOKEN"
TELEGRAM, WEBHOOK = "telegram", "webhook"


class StoredChannelAccess:
    """Channel access through the store. Several processes may use one store."""

    def __init__(self, pairing: Pairing, settings: Settings, environ: Mapping[str, str]) -> None:
        self._pairing = pairing
        self._settings = settings
        self._token = environ.get(TOKEN_VARIABLE, "").strip()

    def configured_channels(self) -> Sequence[ChannelInfo]:
        is_on, webhook = self._settings.telegram != "off", bool(self._settings.channel_webhook_url)
        saved = Path(self._settings.data / BOT_FILE).exists()
        return (
            ChannelInfo(TELEGRAM, is_on and bool(self._token or saved), bool(self._token)),
            ChannelInfo(WEBHOOK, webhook, True),
        )

    async def pending_senders(self) -> Sequence[PendingSenderInfo]:
        return [
            PendingSenderInfo(each.channel, each.sender, each.name, each.asked_at, each.expires_at)
            for each in await self._pairing.pending_senders()
        ]

    async def confirm(self, code: str) -> SenderInfo:
        return _sender_info(await self._pairing.confirm(code))

    async def senders(self) -> Sequence[SenderInfo]:
        return [_sender_info(each) for each in await self._pairing.allowed_senders()]

    async def revoke(self, channel: str, sender: str) -> None:
        await self._pairing.revoke(channel, sender)


def _sender_info(sender: Sender) -> SenderInfo:
    return SenderInfo(sender.channel, sender.sender, sender.name, sender.allowed_at)
