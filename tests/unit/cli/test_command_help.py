"""What `--help` shows of each command."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.app import build_dependencies, command_line
from holdfast.cli.help import build_command

ODD = r"<bool>|<str>  |range>|\[\[|…\}"
"""A flag that seems to take a value, one that is named after Python's types, brackets twice."""


def all_commands(command: Any, *words: str) -> Iterator[tuple[str, ...]]:
    yield words
    for name, each in getattr(command, "commands", {}).items():
        yield from all_commands(each, *words, name)


def help_text(command: Any, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    command.main([*words], prog_name="holdfast", standalone_mode=False)
    return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)


def test_help_shows_flags_without_a_metavar_in_every_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = build_command(command_line(build_dependencies({})))
    found = list(all_commands(command))
    assert ("sessions", "export") in found and len(found) > 25
    for words in found:
        output = help_text(command, capsys, *words, "--help")
        options = output.partition("─ Options ─")[2]
        assert re.search(r"--help +-h +Show this", options), words
        assert not re.search(ODD, options) and "[[" not in output, output


def test_short_and_long_help_options_print_the_same_text(capsys: pytest.CaptureFixture[str]) -> None:
    command = build_command(command_line(build_dependencies({})))
    assert help_text(command, capsys, "chat", "-h") == help_text(command, capsys, "chat", "--help")


def test_help_describes_each_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = build_command(command_line(build_dependencies({})))
    assert "Print a one-time sign-in link." in help_text(command, capsys, "link", "--help")
    output = help_text(command, capsys, "chat", "--help")
    assert "Start a conversation in this terminal" in output
    assert re.search(r"--continue +-c +Continue the last conversation", output)
