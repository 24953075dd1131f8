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
