"""Print lists: one JSON array for programs, a plain table for people."""

from collections.abc import Callable
from typing import TypeVar

from rich.table import Table

from holdfast.cli.command_context import output_console, print_json

T = TypeVar("T")


def print_list(
    items: list[T], as_json: bool, build_table: Callable[[list[T]], Table], empty_message: str
) -> None:
    """Print the items as JSON or as a table; print `empty_message` instead of an empty table."""
    if as_json:
        print_json(items)
    elif items:
        output_console().print(build_table(items))
    else:
        print(empty_message)


def make_table(*titles: str, wrapped_column: str | None = None) -> Table:
    """Return a table without lines and with bold titles; only `wrapped_column` may wrap."""
    new_table = make_bare_table()
    for title in titles:
        new_table.add_column(title, no_wrap=title != wrapped_column, overflow="fold")
    return new_table


def make_bare_table() -> Table:
    """Return the same table without columns, for callers that configure each column."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")


_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
