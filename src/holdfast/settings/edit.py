"""Change single settings in a hand-written file and leave everything else in it as it is.

A statement is the smallest number of lines that are valid TOML by themselves. The result is parsed and
compared before it is used.
"""

import errno
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from holdfast.domain.errors import DiskFull
from holdfast.domain.toml import InvalidToml, parse_toml
from holdfast.settings.info import CannotEditSettings
from holdfast.store.plain_files import fsync_path

_MODE = 0o600
_STATEMENT_LINES_MAX = 1_000
_NAMED = re.compile(r"""\s*(?:(?P<bare>[A-Za-z0-9_-]+)|"(?P<quoted>[^"\\]*)"|'(?P<literal>[^']*)')\s*=""")


class CannotEdit(ValueError):
    """The text cannot be edited; the message says why."""


def change_file(path: Path, changes: Mapping[str, object]) -> None:
    """Change settings in the file at `path`, or create it. Raises CannotEditSettings, DiskFull."""
    try:
        path = path.resolve()
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            text = ""
        replace_file(path, edit_text(text, changes))
    except (CannotEdit, UnicodeDecodeError) as error:
        raise CannotEditSettings(path=path, why=str(error)) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(path=path) from None
        raise CannotEditSettings(path=path, why=error.strerror or str(error)) from None


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically; keep its permissions, or make a new one private."""
    mode = path.stat().st_mode & 0o777 if path.exists() else _MODE
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    fsync_path(path.parent)


def edit_text(text: str, changes: Mapping[str, object]) -> str:
    """Return `text` with these settings changed; None removes one. Raises CannotEdit."""
    before = _read(text)
    remaining, lines, tables = dict(changes), list[str](), list[str]()
    for name, statement in _statements(text.splitlines(keepends=True)):
        if name == "[":
            tables = statement
        elif name not in remaining:
            lines += statement
        elif (value := remaining.pop(name)) is not None:
            lines.append(_line(name, value, _comment(statement)))
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    lines += [_line(name, value, "") for name, value in remaining.items() if value is not None]
    after = "".join([*lines, *tables])
    expected = {name: value for name, value in before.items() if name not in changes}
    expected |= {name: _as_toml_type(value) for name, value in changes.items() if value is not None}
    if _read(after) != expected:
        raise CannotEdit("it is written in a way that cannot be changed without harm")
    return after


def _read(text: str) -> dict[str, object]:
    try:
        return parse_toml(text)
    except InvalidToml as error:
        raise CannotEdit(f"it is not TOML: {error}") from None


def _statements(lines: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each statement's name and lines: "" for other lines, "[" for the first table and all after it."""
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith("["):
            yield "[", list(lines[at:])
            return
        named = _NAMED.match(line)
        size = _size(lines[at:]) if named is not None else 1
        yield (named[named.lastgroup or 0] if named is not None else ""), list(lines[at : at + size])
        at += size


def _size(lines: Sequence[str]) -> int:
    """Return how many of the first lines form a statement."""
    for size in range(1, min(len(lines), _STATEMENT_LINES_MAX) + 1):
        if _is_toml("".join(lines[:size])):
            return size
    raise CannotEdit("it has a value that does not end")


def _comment(statement: Sequence[str]) -> str:
    """Return the comment behind the value of a one-line statement, with the space before it."""
    line = statement[0].rstrip("\r\n") if len(statement) == 1 else ""
    for at, mark in enumerate(line):
        if mark == "#" and _is_toml(line[:at]):
            return line[len(line[:at].rstrip()) :]
    return ""


def _is_toml(text: str) -> bool:
    try:
        parse_toml(text)
    except InvalidToml:
        return False
    return True


def _line(name: str, value: object, comment: str) -> str:
    return f"{name} = {to_toml(value)}{comment}\n"


def to_toml(value: object) -> str:
    """Return a value as TOML. Any text that UTF-8 can encode survives a round trip."""
    match value:
        case str():
            # JSON escapes are valid TOML; TOML requires one more character to be escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case tuple() | list():
            return f"[{', '.join(to_toml(each) for each in value)}]"
    raise AssertionError(f"{value!r} is no value of a setting")


def _as_toml_type(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
