"""The secrets of chat apps in the data folder."""

import stat
from pathlib import Path

import pytest

from holdfast.administration.channel_files import KEY_NAME, TOKEN_NAME, Bot, read_bot, webhook_key, write_bot
from holdfast.config import ConfigError


def test_a_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    keys = {webhook_key(tmp_path) for _ in range(3)}
    assert len(keys) == 1 and len(keys.pop()) == 32
    assert stat.S_IMODE((tmp_path / KEY_NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_NAME]


def test_a_key_that_others_could_read_is_taken_from_them(tmp_path: Path) -> None:
    key = webhook_key(tmp_path)
    (tmp_path / KEY_NAME).chmod(0o644)
    assert webhook_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / KEY_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("written", ["", "whsec_short", "\xff"])
def test_a_file_that_holds_no_key_is_told_without_what_it_says(written: str, tmp_path: Path) -> None:
    (tmp_path / KEY_NAME).write_text(written, "latin-1")
    with pytest.raises(ConfigError) as raised:
        webhook_key(tmp_path)
    assert "short" not in str(raised.value)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    webhook_key(tmp_path)
    (tmp_path / KEY_NAME).rename(tmp_path / "elsewhere")
    (tmp_path / KEY_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        webhook_key(tmp_path)


def test_a_bot_is_saved_privately_and_forgotten(tmp_path: Path) -> None:
    assert read_bot(tmp_path) is None
    for token in ("1:first", '2:"quoted"\\'):
        write_bot(tmp_path, Bot(token))
        assert read_bot(tmp_path) == Bot(token)
        assert stat.S_IMODE((tmp_path / TOKEN_NAME).stat().st_mode) == 0o600
    write_bot(tmp_path, None)
    write_bot(tmp_path, None)
    assert read_bot(tmp_path) is None


def test_a_bots_token_is_not_in_what_is_told_of_it(tmp_path: Path) -> None:
    assert "secret" not in repr(Bot("1:secret"))
    (tmp_path / TOKEN_NAME).write_text('token = 5 # "1:secret"')
    with pytest.raises(ConfigError) as raised:
        read_bot(tmp_path)
    assert "1:secret" not in str(raised.value)
