"""The token of local commands: made once, read by its owner alone, refused where it is none."""

import stat
from pathlib import Path

import pytest

from holdfast.cli.errors import BadTokenFile
from holdfast.cli.server_access import TOKEN_FILE_NAME, local_token


def test_a_token_file_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    first = local_token(tmp_path)
    assert local_token(tmp_path) == first and len(first) >= 32
    assert stat.S_IMODE((tmp_path / TOKEN_FILE_NAME).stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [TOKEN_FILE_NAME]


def test_permissions_of_a_readable_token_file_are_tightened_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = local_token(tmp_path)
    (tmp_path / TOKEN_FILE_NAME).chmod(0o644)
    assert local_token(tmp_path) == first
    assert stat.S_IMODE((tmp_path / TOKEN_FILE_NAME).stat().st_mode) == 0o600
    stderr = capsys.readouterr().err
    assert "could be read by others" in stderr and first not in stderr


@pytest.mark.parametrize("text", [b"", b"short", b"two words " * 9, b"\xff" * 50])
def test_an_invalid_token_file_is_rejected_and_unchanged(tmp_path: Path, text: bytes) -> None:
    (tmp_path / TOKEN_FILE_NAME).write_bytes(text)
    with pytest.raises(BadTokenFile):
        local_token(tmp_path)
    assert (tmp_path / TOKEN_FILE_NAME).read_bytes() == text


def test_a_token_path_that_is_not_a_file_is_rejected(tmp_path: Path) -> None:
    (tmp_path / TOKEN_FILE_NAME).mkdir()
    with pytest.raises(BadTokenFile):
        local_token(tmp_path)
