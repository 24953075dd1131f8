"""What memory is owed, read back."""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from holdfast.domain.clock import CLOCK_MARGIN_MS, Instant
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import COMMIT_RETRY_MS_MAX
from holdfast.domain.ranges import numbers_in
from holdfast.domain.state.rows import Debt, DebtRow
from holdfast.store.ports import Message
from holdfast.store.sqlite.sql import DEBTS, MESSAGES, one, rows, snapshot
from holdfast.store.sqlite.views import content


def debts(db: apsw.Connection, session_id: SessionId, buried: bool) -> Sequence[DebtRow]:
    no = _locate(db, session_id, buried)
    return [DEBTS.read(row) for row in rows(db, "all_debts", no)] if no else []


def open_debts(db: apsw.Connection, limit: int) -> Sequence[Debt]:
    return [_debt(row) for row in rows(db, "every_open_debt", limit)]


def kept_debts(db: apsw.Connection, limit: int) -> Sequence[Debt]:
    return [_debt(row) for row in rows(db, "kept_debts", limit)]


def owing(db: apsw.Connection, session_id: SessionId) -> Sequence[Debt]:
    return [_debt(row) for row in rows(db, "owing", session_id)]


def due_debts(
    db: apsw.Connection, quiet_since: Instant, now: Instant, limit: int, resting: Sequence[str]
) -> Sequence[Debt]:
    owners = msgspec.json.encode(list(resting)).decode()
    # Later than any time can be that was set by now: the clock was wrong then.
    wrong, wrong_retry = now + CLOCK_MARGIN_MS, now + CLOCK_MARGIN_MS + COMMIT_RETRY_MS_MAX
    found = rows(db, "due_debts", quiet_since, now, limit, owners, wrong, wrong_retry)
    return [_debt(row) for row in found]


def totals(db: apsw.Connection) -> tuple[int, Instant]:
    row = one(db, "debt_totals")
    return (row[0], row[1]) if row is not None else (0, 0)


def told(db: apsw.Connection, session_id: SessionId, turns: Ranges, number: int) -> Sequence[Message]:
    with snapshot(db):
        numbered = one(db, "numbered_head", number, session_id) if number else None
        row = numbered if number else one(db, "session_head", session_id)
        no = int(row[0]) if row is not None else 0
        found = [
            MESSAGES.read(row)
            for turn in (numbers_in(turns) if no else ())
            for row in rows(db, "messages_of_turn", no, turn)
        ]
        return [Message(row, True, content(db, no, row)) for row in found]


def _locate(db: apsw.Connection, session_id: SessionId, buried: bool) -> int:
    row = one(db, "buried_head" if buried else "session_head", session_id)
    return int(row[0]) if row is not None else 0


def _debt(row: tuple[Any, ...]) -> Debt:
    return Debt(row[0], row[1], row[2], bool(row[3]), row[4], DEBTS.read(row[5:]))
