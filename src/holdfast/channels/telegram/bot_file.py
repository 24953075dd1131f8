"""Read and write the file of the connected Telegram bot, which only its owner can read."""

from pathlib import Path

import msgspec

from holdfast.settings.secret_file import read_secret, write_secret

BOT_FILE = "telegram.toml"
_HEAD = "# The Telegram bot that was connected in the settings. Holds its token: keep it to yourself.\n"


class SavedTelegramBot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bot's credentials."""

    token: str

    def __repr__(self) -> str:
        return "Bot(…)"


def read_bot(folder: Path) -> SavedTelegramBot | None:
    """Return the saved bot. Raises ConfigError for a file that cannot be read."""
    return read_secret(folder / BOT_FILE, SavedTelegramBot, "connection to Telegram")


def write_bot(folder: Path, bot: SavedTelegramBot | None) -> None:
    """Save a bot, or delete the saved one if `bot` is None. Raises OSError."""
    write_secret(folder / BOT_FILE, bot, _HEAD)
