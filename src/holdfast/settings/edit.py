"""Changing single settings in a file that people write by hand: everything else in it stays as it was.

The file is taken apart by its own rules: a statement is the fewest lines that are TOML by themselves. What
comes out is read again and compared before it is used.
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
    """Something in the text is in the way; says what."""


def change_file(path: Path, changes: Mapping[str, object]) -> None:
    """Change settings in the file at `path`, or make it. Raises CannotEditSettings, DiskFull."""
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
    """Put a file in place of what was there, so that a reader sees one or the other; as private as it was."""
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
    """`text` with these settings in it; None takes one out. Raises CannotEdit."""
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
    """Each statement's name and lines: "" for what is none, "[" for the first table and all after it."""
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
    """How many of the first lines make a statement."""
    for size in range(1, min(len(lines), _STATEMENT_LINES_MAX) + 1):
        if _is_toml("".join(lines[:size])):
            return size
    raise CannotEdit("it has a value that does not end")


def _comment(statement: Sequence[str]) -> str:
    """What stands behind the value of a statement on one line, with the space before it."""
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
    """A value as TOML has it. Any text that UTF-8 can write is read again as it was."""
    match value:
        case str():
            # What JSON escapes, TOML reads; it wants one character more to be escaped.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float():
            return repr(value)
        case tuple() | list():
            return f"[{', '.join(to_toml(each) for each in value)}]"
    raise AssertionError(f"{value!r} is no value of a setting")


def _as_toml_type(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
