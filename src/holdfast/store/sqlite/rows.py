"""Between the domain's rows and the table's columns, which have the same names in the same order."""

from typing import Any, Generic, TypeVar, get_args, get_origin

import msgspec

from holdfast.domain.state.rows import DebtRow, MessageRow, RunRow, SessionRow, ToolRow, TurnRow

R = TypeVar("R", bound=msgspec.Struct)


class Columns(Generic[R]):
    """Flattens a row for SQLite: structs and tuples inside it become JSON text."""

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
DEBTS = Columns(DebtRow)
