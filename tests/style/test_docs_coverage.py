"""Whatever people can meet is written down: settings, events, errors, limits, commands, paths."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator

from typer.main import get_command

import holdfast
from holdfast.app import build_dependencies, command_line
from holdfast.domain import limits
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.facts import FACTS_BY_KIND
from holdfast.http.app import PATHS
from holdfast.http.metrics import METRICS
from holdfast.settings.settings import PREFIX, settings_help
from tests.support.source_files import ROOT


def document(*names: str) -> str:
    return "\n".join((ROOT / "docs" / name).read_text("utf-8") for name in names)


def missing(names: Iterable[str], text: str) -> list[str]:
    """The names that `text` does not hold as code: between backticks, alone or as words of a line."""
    spans = " \n ".join(re.findall(r"`([^`\n]+)`", text))
    return [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", spans)]


def error_codes() -> set[str]:
    """The code of every error in the package."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    kinds, codes = [HoldfastError], set()
    while kinds:
        kind = kinds.pop()
        codes.add(kind.code)
        kinds += [sub for sub in kind.__subclasses__() if sub.__module__.startswith("holdfast.")]
    return codes - {HoldfastError.code}


def commands() -> Iterator[str]:
    """Every command as people type it."""
    waiting = [("holdfast", get_command(command_line(build_dependencies({}))))]
    while waiting:
        typed, command = waiting.pop()
        inner = getattr(command, "commands", None)
        if inner is None:
            yield typed
        else:
            waiting += [(f"{typed} {name}", sub) for name, sub in inner.items()]


def test_every_setting_is_in_operations() -> None:
    names = [PREFIX + name.upper() for name in settings_help()] + list(settings_help())
    assert missing(names, document("operations.md")) == []


def test_every_limit_is_in_operations() -> None:
    named = {name: value for name, value in vars(limits).items() if name.isupper()}
    text = document("operations.md")
    assert missing(named, text) == []
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+)", text, re.MULTILINE))
    assert {name: int(value.replace(",", "")) for name, value in rows.items()} == named


def test_every_command_is_in_operations() -> None:
    assert missing(commands(), document("operations.md")) == []


def test_every_path_is_in_operations() -> None:
    assert missing(PATHS, document("operations.md")) == []


def test_every_metric_is_in_operations() -> None:
    assert missing(METRICS, document("operations.md")) == []


def test_every_event_kind_is_in_the_protocol() -> None:
    assert missing(FACTS_BY_KIND, document("protocol.md")) == []


def test_every_error_code_is_in_the_protocol_or_in_operations() -> None:
    assert missing(error_codes(), document("protocol.md", "operations.md")) == []


def test_what_is_not_written_down_is_found() -> None:
    text = "The setting `port`, the command `holdfast serve --port N`, and the word data in plain text."
    assert missing(["port", "holdfast serve", "data", "por"], text) == ["data", "por"]


def test_error_codes_and_commands_are_found_where_they_are() -> None:
    assert {"disk_full", "bad_config", "port_taken", "no_such_page"} <= error_codes()
    assert "holdfast serve" in set(commands())
