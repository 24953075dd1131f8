"""The events that hold what a message says."""

import apsw

from holdfast.domain.codec import Event
from holdfast.domain.facts import DELTA_KINDS, ToolOutputAppended
from holdfast.domain.rows import MessageRow
from holdfast.store.sqlite.sql import rows

_LAST = 1 << 62


def content(db: apsw.Connection, no: int, row: MessageRow) -> tuple[Event, ...]:
    """What a message says: its body, or the event that opened it and its deltas so far."""
    if row.body_seq:
        return tuple(Event(*event) for event in rows(db, "read_event", no, row.body_seq))
    events = [Event(*columns) for columns in rows(db, "read_range", no, row.first_seq, _LAST)]
    return tuple(event for event in events if event.seq == row.first_seq or belongs(event, row))


def belongs(event: Event, row: MessageRow) -> bool:
    """Whether an event is a delta of the message or of the tool call in `row`."""
    if event.kind not in DELTA_KINDS:
        return False
    fact = event.fact
    if isinstance(fact, ToolOutputAppended):
        return row.role == "tool" and fact.call_id == row.id
    return row.role != "tool" and getattr(fact, "message_id", None) == row.id
