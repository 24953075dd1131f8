"""The bot that was connected, in the data folder."""

import stat
from pathlib import Path

import pytest

from holdfast.channels.telegram.bot_file import BOT_FILE, SavedTelegramBot, read_bot, write_bot
from holdfast.settings.settings import ConfigError


def test_a_bot_is_saved_privately_and_forgotten(tmp_path: Path) -> None:
    assert read_bot(tmp_path) is None
    for token in ("1:first", '2:"quoted"\\'):
        write_bot(tmp_path, SavedTelegramBot(token))
        assert read_bot(tmp_path) == SavedTelegramBot(token)
        assert stat.S_IMODE((tmp_path / BOT_FILE).stat().st_mode) == 0o600
    write_bot(tmp_path, None)
    write_bot(tmp_path, None)
    assert read_bot(tmp_path) is None


def test_a_bot_repr_hides_its_token(tmp_path: Path) -> None:
    assert "secret" not in repr(SavedTelegramBot("1:secret"))
    (tmp_path / BOT_FILE).write_text('token = 5 # "1:secret"')
    with pytest.raises(ConfigError) as raised:
        read_bot(tmp_path)
    assert "1:secret" not in str(raised.value)
