"""The `.sql` files of this folder, as named statements."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import apsw

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _load() -> Mapping[str, str]:
    pieces = _NAME.split(read("queries.sql"))[1:]
    return MappingProxyType(dict(zip(pieces[::2], map(_bare, pieces[1::2]), strict=True)))


def _bare(statement: str) -> str:
    # A comment that heads the next section belongs to the file, not to the statement.
    return "\n".join(line for line in statement.splitlines() if line and not line.startswith("--"))


def read(name: str) -> str:
    """The text of a file in this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


SQL = _load()


@contextmanager
def snapshot(db: apsw.Connection) -> Iterator[None]:
    """Read as of one moment: that of the transaction under way, or else of a new one."""
    if db.in_transaction:
        yield
        return
    run(db, "begin_read")
    try:
        yield
    finally:
        # An error of the file ends the transaction by itself, and is what must be told.
        if db.in_transaction:
            run(db, "commit")


def run(db: apsw.Connection, name: str, *args: Any) -> None:
    """Execute the statement called `name`; it returns no rows."""
    db.execute(SQL[name], args)


def one(db: apsw.Connection, name: str, *args: Any) -> tuple[Any, ...] | None:
    """The first row of the query called `name`."""
    return db.execute(SQL[name], args).fetchone()


def rows(db: apsw.Connection, name: str, *args: Any) -> list[tuple[Any, ...]]:
    """All rows of the query called `name`."""
    return db.execute(SQL[name], args).fetchall()


def each(db: apsw.Connection, name: str, *args: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the query called `name`, read one by one."""
    yield from db.execute(SQL[name], args)


def value(db: apsw.Connection, name: str, *args: Any) -> Any:
    """The only value of the query called `name`, which always has one row."""
    return db.execute(SQL[name], args).fetchall()[0][0]
