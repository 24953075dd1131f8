"""Print lists: one JSON array for programs, a plain table for people."""

from collections.abc import Callable
from typing import TypeVar

from rich.table import Table

from holdfast.cli.command_context import give, screen

T = TypeVar("T")


def tell_list(found: list[T], as_json: bool, drawn: Callable[[list[T]], Table], none: str) -> None:
    """Answer with a list; where there is nothing, people read the sentence `none`."""
    if as_json:
        give(found)
    elif found:
        screen().print(drawn(found))
    else:
        print(none)


def table(*titles: str, wraps: str | None = None) -> Table:
    """A table without lines, its titles in bold; only the column `wraps` may take more than one line."""
    made = bare_table()
    for title in titles:
        made.add_column(title, no_wrap=title != wraps, overflow="fold")
    return made


def bare_table() -> Table:
    """The same without its columns, for one that has each in its own way."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def age(ms: int) -> str:
    """How long ago, as people say it."""
    seconds = max(0, ms) // 1000
    if seconds < _MINUTE:
        return "just now"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min ago"
    if seconds < _DAY:
        return f"{seconds // _HOUR} h ago"
    days = seconds // _DAY
    return "yesterday" if days == 1 else f"{days:,} days ago"


def counted(count: int, one: str, many: str = "") -> str:
    """`1 conversation`, `2 conversations`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
