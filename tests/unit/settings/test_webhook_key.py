"""The secret that webhooks are signed with: made once, read by its owner alone, refused where it is none."""

import base64
import stat
from pathlib import Path

import pytest

from holdfast.settings.secret_file import MEMORY_WEBHOOK_KEY_FILE as NAME
from holdfast.settings.secret_file import BadWebhookKey, read_or_create_webhook_key
from tests.support.example_receiver_process import SECRET


def test_a_webhook_key_is_created_once_and_private(tmp_path: Path) -> None:
    notes: list[str] = []
    first = read_or_create_webhook_key(tmp_path / NAME, notes.append)
    assert read_or_create_webhook_key(tmp_path / NAME, notes.append) == first
    assert first.startswith("whsec_") and len(base64.b64decode(first.removeprefix("whsec_"))) == 32
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [NAME] and notes == []
    assert read_or_create_webhook_key(_folder(tmp_path / "other") / NAME, notes.append) != first


def test_a_world_readable_key_is_made_private_with_a_warning(tmp_path: Path) -> None:
    notes: list[str] = []
    first = read_or_create_webhook_key(tmp_path / NAME, notes.append)
    (tmp_path / NAME).chmod(0o644)
    assert read_or_create_webhook_key(tmp_path / NAME, notes.append) == first
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    [note] = notes
    assert "could be read by others" in note and first not in note


@pytest.mark.parametrize(
    "text", [b"", b"whsec_", b"whsec_c2hvcnQ=", b"AAAA" * 16, b"whsec_***" * 9, b"\xff" * 50]
)
def test_a_file_that_holds_no_key_is_refused_and_left_as_it_is(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    (tmp_path / NAME).chmod(0o600)
    with pytest.raises(BadWebhookKey) as raised:
        read_or_create_webhook_key(tmp_path / NAME, print)
    assert "c2hvcnQ" not in str(raised.value), "it may be most of a key"
    assert (tmp_path / NAME).read_bytes() == text


def test_a_key_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(SECRET)
    (tmp_path / NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadWebhookKey):
        read_or_create_webhook_key(tmp_path / NAME, print)
    (_folder(tmp_path / "b") / NAME).mkdir()
    with pytest.raises(BadWebhookKey):
        read_or_create_webhook_key(tmp_path / "b" / NAME, print)


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
