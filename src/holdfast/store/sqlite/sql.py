"""Load the `.sql` files of this folder as named statements, and map rows to the structs of `domain`."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Generic, TypeVar, get_args, get_origin

import apsw
import msgspec

from holdfast.domain.state.rows import MessageRow, QueuedCommitRow, RunRow, SessionRow, ToolRow, TurnRow

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
R = TypeVar("R", bound=msgspec.Struct)


def _load() -> Mapping[str, str]:
    pieces = _NAME.split(read_file("queries.sql"))[1:]
    statements = dict(zip(pieces[::2], map(_bare, pieces[1::2]), strict=True))
    assert len(statements) == len(pieces) // 2, "two statements have the same name"
    return MappingProxyType(statements)


def _bare(statement: str) -> str:
    # A comment that heads the next section belongs to the file, not to the statement.
    return "\n".join(line for line in statement.splitlines() if line and not line.startswith("--"))


def read_file(name: str) -> str:
    """Return the text of a file in this folder."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


SQL = _load()


@contextmanager
def read_transaction(db: apsw.Connection) -> Iterator[None]:
    """Read as of one moment: that of the current transaction, or of a new one."""
    if db.in_transaction:
        yield
        return
    execute(db, "begin_read")
    try:
        yield
    finally:
        # A file error ends the transaction by itself; a commit would hide that error.
        if db.in_transaction:
            execute(db, "commit")


def execute(db: apsw.Connection, name: str, *args: Any) -> None:
    """Execute the statement called `name`; it returns no rows."""
    db.execute(SQL[name], args)


def fetch_one(db: apsw.Connection, name: str, *args: Any) -> tuple[Any, ...] | None:
    """Return the first row of the query called `name`, if any."""
    return db.execute(SQL[name], args).fetchone()


def fetch_all(db: apsw.Connection, name: str, *args: Any) -> list[tuple[Any, ...]]:
    """Return all rows of the query called `name`."""
    return db.execute(SQL[name], args).fetchall()


def iter_rows(db: apsw.Connection, name: str, *args: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of the query called `name`, read one by one."""
    yield from db.execute(SQL[name], args)


def fetch_value(db: apsw.Connection, name: str, *args: Any) -> Any:
    """Return the only value of the query called `name`, which always has one row."""
    return db.execute(SQL[name], args).fetchall()[0][0]


class Columns(Generic[R]):
    """Map a struct to columns: nested structs and tuples become JSON text."""

    def __init__(self, cls: type[R]) -> None:
        self._cls = cls
        self._names = cls.__struct_fields__
        hints = [field.type for field in msgspec.structs.fields(cls)]
        self._nested = tuple(i for i, hint in enumerate(hints) if _is_nested(hint))
        self._bools = tuple(i for i, hint in enumerate(hints) if hint is bool)
        self._decoders = {i: msgspec.json.Decoder(hints[i]) for i in self._nested}

    def write(self, row: R) -> tuple[Any, ...]:
        values = [getattr(row, name) for name in self._names]
        for i in self._nested:
            if values[i] is not None:
                values[i] = msgspec.json.encode(values[i]).decode()
        return tuple(values)

    def read(self, columns: tuple[Any, ...]) -> R:
        values = list(columns)
        for i in self._nested:
            if values[i] is not None:
                values[i] = self._decoders[i].decode(values[i])
        for i in self._bools:
            values[i] = bool(values[i])
        return self._cls(*values)


def _is_nested(hint: Any) -> bool:
    if get_origin(hint) is tuple:
        return True
    return any(isinstance(t, type) and issubclass(t, msgspec.Struct) for t in (hint, *get_args(hint)))


SESSIONS = Columns(SessionRow)
TURNS = Columns(TurnRow)
RUNS = Columns(RunRow)
TOOLS = Columns(ToolRow)
MESSAGES = Columns(MessageRow)
QUEUED_COMMITS = Columns(QueuedCommitRow)
