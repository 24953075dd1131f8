"""The Telegram bot that was connected in the settings: a file that only its owner can read."""

from pathlib import Path

import msgspec

from holdfast.settings.secret_file import read_secret, write_secret

BOT_FILE = "telegram.toml"
_HEAD = "# The Telegram bot that was connected in the settings. Holds its token: keep it to yourself.\n"


class Bot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lets one speak as a bot."""

    token: str

    def __repr__(self) -> str:
        return "Bot(…)"


def read_bot(folder: Path) -> Bot | None:
    """The bot that was connected. Raises ConfigError for a file that cannot be read."""
    return read_secret(folder / BOT_FILE, Bot, "connection to Telegram")


def write_bot(folder: Path, bot: Bot | None) -> None:
    """Put a bot in place of what was saved; None: there is none any more. Raises OSError."""
    write_secret(folder / BOT_FILE, bot, _HEAD)
