"""The token of local commands: made once, read by its owner alone, refused where it is none."""

import stat
from pathlib import Path

import pytest

from holdfast.cli.errors import BadTokenFile
from holdfast.cli.server_access import NAME, local_token


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    first = local_token(tmp_path)
    assert local_token(tmp_path) == first and len(first) >= 32
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [NAME]


def test_a_token_that_others_could_read_is_closed_to_them_and_that_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = local_token(tmp_path)
    (tmp_path / NAME).chmod(0o644)
    assert local_token(tmp_path) == first
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    told = capsys.readouterr().err
    assert "could be read by others" in told and first not in told


@pytest.mark.parametrize("text", [b"", b"short", b"two words " * 9, b"\xff" * 50])
def test_a_file_that_holds_no_token_is_refused_and_left_as_it_is(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    with pytest.raises(BadTokenFile):
        local_token(tmp_path)
    assert (tmp_path / NAME).read_bytes() == text


def test_a_token_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with pytest.raises(BadTokenFile):
        local_token(tmp_path)
