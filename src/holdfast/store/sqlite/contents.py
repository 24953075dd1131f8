"""The events that hold what a message says."""

import apsw

from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import DELTA_KINDS, ToolOutputAppended
from holdfast.domain.ids import Seq
from holdfast.domain.state.rows import MessageRow
from holdfast.store.sqlite.bodies import event_of
from holdfast.store.sqlite.sql import rows

_LAST = 1 << 62


def content(db: apsw.Connection, no: int, row: MessageRow) -> tuple[Event, ...]:
    """What a message says: its body, or the event that opened it and its deltas so far."""
    if row.body_seq:
        return tuple(event_of(columns) for columns in rows(db, "read_event", no, row.body_seq))
    first = [event_of(columns) for columns in rows(db, "read_event", no, row.first_seq)]
    return (*first, *deltas_of(db, no, row, _LAST))


def deltas_of(db: apsw.Connection, no: int, row: MessageRow, until: Seq) -> list[Event]:
    """What was streamed of a message or call, up to `until`."""
    events = [event_of(columns) for columns in rows(db, "read_deltas", no, row.first_seq, until)]
    return [event for event in events if belongs(event, row)]


def belongs(event: Event, row: MessageRow) -> bool:
    """Whether an event is a delta of the message or of the tool call in `row`."""
    if event.kind not in DELTA_KINDS:
        return False
    fact = event.fact
    if isinstance(fact, ToolOutputAppended):
        return row.role == "tool" and fact.call_id == row.id
    return row.role != "tool" and getattr(fact, "message_id", None) == row.id
