"""Changing settings in a file that somebody wrote by hand: all else in it stays, or nothing is changed."""

import stat
import tomllib
from pathlib import Path

import pytest

from holdfast.settings.edit import CannotEdit, change_file, edit_text
from holdfast.settings.info import CannotEditSettings

OWN = """\
# My settings
port = 9000          # not the usual one

never_run = [
    "rm -rf *",      # a list
    'say "#"',
]
approvals = "ask" # for now: "ask" # and so on
resume="auto"
"""


def test_a_value_is_replaced_where_it_stands_and_keeps_its_comment() -> None:
    assert edit_text(OWN, {"approvals": "allow"}) == OWN.replace(
        'approvals = "ask" #', 'approvals = "allow" #'
    )
    assert edit_text(OWN, {"port": 9001}) == OWN.replace("port = 9000 ", "port = 9001 ")


def test_a_value_over_several_lines_is_replaced_as_a_whole() -> None:
    changed = edit_text(OWN, {"never_run": ("halt", 'it\'s "so"\n\x7f\\')})
    assert tomllib.loads(changed)["never_run"] == ["halt", 'it\'s "so"\n\x7f\\']
    assert changed.startswith("# My settings\nport = 9000          # not the usual one\n\nnever_run = [")
    assert changed.endswith('approvals = "ask" # for now: "ask" # and so on\nresume="auto"\n')


def test_new_settings_are_appended_and_removed_ones_leave_nothing() -> None:
    assert edit_text(OWN, {"run_cost_usd_max": 2.5}) == OWN + "run_cost_usd_max = 2.5\n"
    assert edit_text("", {"resume": "never"}) == 'resume = "never"\n'
    assert (
        edit_text('port = 1\nresume = "ask"', {"runs_at_once": 3})
        == 'port = 1\nresume = "ask"\nruns_at_once = 3\n'
    )
    assert edit_text(OWN, {"resume": None, "never_run": None, "approvals": None}) == (
        "# My settings\nport = 9000          # not the usual one\n\n"
    )
    assert edit_text(OWN, {"auth": None}) == OWN


@pytest.mark.parametrize(
    "text",
    [
        "port = 1\r\nresume = 'ask'\r\n",
        "\"resume\" = 'ask'\n",
        "  resume='''ask'''\n",
        'resume = """\nask"""',
    ],
)
def test_a_setting_is_found_in_any_toml_spelling(text: str) -> None:
    before, after = tomllib.loads(text), tomllib.loads(edit_text(text, {"resume": "never"}))
    assert after == before | {"resume": "never"}


def test_toml_tables_are_left_unchanged() -> None:
    text = 'port = 1\n[extra]\nresume = "ask"\n'
    assert edit_text(text, {"resume": "never"}) == 'port = 1\nresume = "never"\n[extra]\nresume = "ask"\n'


@pytest.mark.parametrize(
    "text",
    [
        "port = ", "port = [1", 'a.b = 1\na.resume = "x"\na."resume" = 1', "x = 1\nx = 2",
        "port = " + "1" * 5_000, "port = " + "[" * 9_000,
    ],
    ids=["nothing", "open", "inner", "twice", "digits", "depth"],
)  # fmt: skip
def test_invalid_toml_is_not_edited(text: str, tmp_path: Path) -> None:
    with pytest.raises(CannotEdit):
        edit_text(text, {"resume": "never"})
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    with pytest.raises(CannotEditSettings):
        change_file(path, {"resume": "never"})
    assert path.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["holdfast.toml"]


def test_a_file_keeps_its_mode_and_its_links(tmp_path: Path) -> None:
    real, path = tmp_path / "real.toml", tmp_path / "holdfast.toml"
    real.write_text("port = 1\n")
    real.chmod(0o640)
    path.symlink_to(real)
    change_file(path, {"port": 2})
    assert path.is_symlink()
    assert (real.read_text(), stat.S_IMODE(real.stat().st_mode)) == ("port = 2\n", 0o640)


def test_a_new_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "holdfast.toml"
    change_file(path, {"port": 2})
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("port = 2\n", 0o600)


def test_an_unwritable_settings_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotEditSettings):
        change_file(tmp_path / "nowhere" / "holdfast.toml", {"port": 2})
