"""Append inside a transaction.

Each precondition is checked before the first write, so a refusal leaves no trace and the other appends of the
batch continue.
"""

from collections.abc import Sequence
from itertools import pairwise

import apsw
import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.decisions import endings, memory_queue
from holdfast.domain.errors import (
    BadImport,
    KeyReused,
    LeaseLost,
    NoSuchBlob,
    NoSuchSession,
    SeqMismatch,
    SessionExists,
    TooLarge,
)
from holdfast.domain.events.codec import Event, UnknownFact, encode
from holdfast.domain.events.facts import (
    DELTA_KINDS,
    AnyFact,
    Body,
    Delta,
    MessageSettled,
    SessionCreated,
    TurnAccepted,
    TurnSteered,
)
from holdfast.domain.events.parts import blob_digests
from holdfast.domain.events.tool_facts import ToolSettled
from holdfast.domain.ids import Position, Seq, SessionId
from holdfast.domain.limits import EVENT_BYTES_MAX, FACTS_PER_APPEND_MAX
from holdfast.domain.state.projections import message_key_digest, project
from holdfast.domain.state.rows import TurnRow
from holdfast.domain.state.session_state import Facts
from holdfast.store.ports import Append, AppendReceipt, Fence
from holdfast.store.sqlite.bodies import compress
from holdfast.store.sqlite.session_state import SqlSessionState
from holdfast.store.sqlite.sql import execute, fetch_one


class Tx:
    """An open transaction: its connection, its time, the last position used, the events it adds."""

    def __init__(self, db: apsw.Connection, at: Instant, position: Position) -> None:
        self.db = db
        self.at = at
        self.position = position
        self.new_events: list[tuple[SessionId, Event]] = []

    def store(self, session_id: SessionId, no: int, event: Event) -> None:
        """Insert one event into the journal."""
        self.position += 1
        is_delta = event.kind in DELTA_KINDS
        execute(
            self.db, "insert_delta" if is_delta else "insert_event",
            self.position, no, event.seq, event.at, event.kind, event.version,
            event.body if is_delta else compress(event.body),
        )  # fmt: skip
        self.new_events.append((session_id, event))


class _CheckedAppend(msgspec.Struct):
    """An append that has passed all checks."""

    append: Append
    no: int
    head: Seq
    context: Seq
    incarnation: int
    facts: Facts
    encoded: list[tuple[str, int, bytes]]
    repeated_turn: TurnRow | None = None


def apply_all(tx: Tx, appends: Sequence[Append]) -> tuple[AppendReceipt, ...]:
    """Store `appends`, or raise before writing any of them.

    All decisions see the state from before this transaction.
    """
    if len(appends) == 1:
        return (_write_append(tx, _check_append(tx, appends[0])),)
    ids = {append.session_id for append in appends}
    assert len(ids) == len(appends), "one append per session in a change"
    checked = [_check_append(tx, append) for append in appends]
    return tuple(_write_append(tx, one) for one in checked)


def _check_append(tx: Tx, append: Append) -> _CheckedAppend:
    no, head, context, incarnation = _locate(tx.db, append)
    if append.fence is not None:
        _check_fence(tx.db, append.fence)
    facts = append.facts(SqlSessionState(tx.db, no)) if callable(append.facts) else append.facts
    if no and len(facts) == 1 and isinstance(facts[0], Delta) and append.expect is None:
        # By far the most frequent append: only its size can be wrong.
        return _CheckedAppend(append, no, head, context, incarnation, facts, [_encoded(facts[0])])
    is_creation = bool(facts) and isinstance(facts[0], SessionCreated)
    if no and is_creation:
        raise SessionExists(session_id=append.session_id)
    if not no and not is_creation:
        raise NoSuchSession(session_id=append.session_id)
    if len(facts) > FACTS_PER_APPEND_MAX:
        raise TooLarge(what="A change", size=len(facts), limit=FACTS_PER_APPEND_MAX)
    repeated = _find_repeated_turn(tx.db, no, facts)
    if repeated is not None:
        return _CheckedAppend(append, no, head, context, incarnation, (), [], repeated)
    # After the check for a repeat: a retried send expects the head from before its first try.
    if append.expect is not None and append.expect != head:
        raise SeqMismatch(session_id=append.session_id, head=head, expect=append.expect)
    encoded = [_encoded(fact) for fact in facts]
    _check_blobs(tx.db, facts)
    return _CheckedAppend(append, no, head, context, incarnation, facts, encoded)


def _encoded(fact: AnyFact | UnknownFact) -> tuple[str, int, bytes]:
    kind, version, body = encode(fact)
    if len(body) > EVENT_BYTES_MAX:
        raise TooLarge(what=kind, size=len(body), limit=EVENT_BYTES_MAX)
    return kind, version, body


def _locate(db: apsw.Connection, append: Append) -> tuple[int, Seq, Seq, int]:
    """Return the session's number, head, context version, and the position of its first event.

    The position serves as the incarnation: no other session ever gets it.
    """
    if append.number:
        row = fetch_one(db, "numbered_head", append.number, append.session_id)
    else:
        row = fetch_one(db, "session_head", append.session_id)
    if row is None:
        return 0, 0, 0, 0
    no, head, context, incarnation = row
    return no, head or 0, context, incarnation or 0


def _check_fence(db: apsw.Connection, fence: Fence) -> None:
    row = fetch_one(db, "get_lease", fence.run_id)
    # A released lease has no holder: its epoch alone proves nothing.
    if row is None or row[0] != fence.epoch or not row[1]:
        raise LeaseLost(run_id=fence.run_id)


def _find_repeated_turn(db: apsw.Connection, no: int, facts: Facts) -> TurnRow | None:
    sends = [fact for fact in facts if isinstance(fact, TurnAccepted) and fact.key is not None]
    if len({fact.key for fact in sends}) < len(sends):
        raise KeyReused(key=sends[-1].key)
    for fact in sends if no else ():
        row = SqlSessionState(db, no).turn_by_key(fact.key or "")
        if row is not None and row.key_digest != message_key_digest(fact.parts):
            raise KeyReused(key=fact.key)
        if row is not None:
            return row
    return None


def _check_blobs(db: apsw.Connection, facts: Facts) -> None:
    for digest in _blobs_of(facts):
        row = fetch_one(db, "get_blob", digest)
        if row is None or not row[1]:
            raise NoSuchBlob(digest=digest)


def _blobs_of(facts: Facts) -> list[str]:
    bodies = [fact for fact in facts if isinstance(fact, Body)]
    return [blob for body in bodies for blob in blob_digests(body.parts)]


def _write_append(tx: Tx, one: _CheckedAppend) -> AppendReceipt:
    session_id, seq = one.append.session_id, one.head
    if one.repeated_turn is not None:
        first = one.repeated_turn.seq
        return AppendReceipt(
            session_id, first, first, one.context, one.context, one.repeated_turn, one.incarnation
        )
    state: SqlSessionState | None = None
    no, context, incarnation = one.no, one.context, one.incarnation or tx.position + 1
    for fact, (kind, version, body) in zip(one.facts, one.encoded, strict=True):
        seq += 1
        if kind not in DELTA_KINDS:
            state = state or SqlSessionState(tx.db, no)
            project(state, session_id, seq, tx.at, fact)
            no = state.no
            mark_prunable(tx, state, fact)
        tx.store(session_id, no, Event(seq, tx.at, kind, version, body))
    if state is not None:
        state.flush()
        row = state.session()
        context = row.context_version if row is not None else 0
        _use_blobs(tx.db, no, one.facts)
    return AppendReceipt(session_id, one.head + 1, seq, one.context, context, None, incarnation)


def mark_prunable(tx: Tx, state: SqlSessionState, fact: object) -> None:
    """Record that a body is settled, so that the sweeper can delete its deltas later."""
    if not isinstance(fact, MessageSettled | ToolSettled):
        return
    row = state.message(fact.turn, fact.place)
    if row is not None and row.first_seq < row.body_seq:
        execute(tx.db, "insert_prunable", tx.at, state.no, fact.turn, fact.place)


def _use_blobs(db: apsw.Connection, no: int, facts: Facts) -> None:
    for digest in _blobs_of(facts):
        row = fetch_one(db, "get_blob", digest)
        assert row is not None, "checked before anything was written"
        execute(db, "put_blob_use", row[0], no)


def import_slice(tx: Tx, session_id: SessionId, events: Sequence[Event], cancel_open_runs: bool) -> int:
    """Store the events past the session's head; return how many.

    The caller has compared the stored events with the import; this adds one slice. `cancel_open_runs` comes
    with the last slice: it cancels open runs, because their work belongs to the other store. Raises
    BadImport.
    """
    row = fetch_one(tx.db, "session_head", session_id)
    no, head = (row[0], row[1] or 0) if row is not None else (0, 0)
    new_events = [event for event in events if event.seq > head]
    facts = _facts_of(session_id, new_events, is_new_session=not no)
    state = SqlSessionState(tx.db, no)
    for event, fact in zip(new_events, facts, strict=True):
        if event.kind not in DELTA_KINDS:
            project(state, session_id, event.seq, event.at, fact)
            mark_prunable(tx, state, fact)
        tx.store(session_id, state.no, event)
        if isinstance(fact, TurnAccepted | TurnSteered | MessageSettled | ToolSettled):
            _use_known_blobs(tx.db, state.no, fact)
    if cancel_open_runs and new_events:
        _cancel_open_runs(tx, session_id, state, new_events[-1].seq)
    state.flush()
    return len(new_events)


def _cancel_open_runs(tx: Tx, session_id: SessionId, state: SqlSessionState, seq: Seq) -> None:
    ended = [
        fact
        for each in state.open_runs()
        for fact in endings.cancel(state, each, "server", state.message_events)
    ]
    for fact in (*ended, *memory_queue.drop_all(state)):
        seq += 1
        project(state, session_id, seq, tx.at, fact)
        mark_prunable(tx, state, fact)
        tx.store(session_id, state.no, Event(seq, tx.at, *encode(fact)))


def _facts_of(
    session_id: SessionId, events: Sequence[Event], is_new_session: bool
) -> list[AnyFact | UnknownFact]:
    """Return the facts of imported events. Raises BadImport if they cannot be stored."""
    if any(one.seq >= next_.seq for one, next_ in pairwise(events)):
        raise BadImport(path=session_id, why="its events are not in order")
    try:
        facts = [event.fact for event in events]
    except msgspec.ValidationError as error:
        raise BadImport(path=session_id, why=f"an event cannot be read: {error}") from error
    if is_new_session and facts and not isinstance(facts[0], SessionCreated):
        raise BadImport(path=session_id, why="it does not begin with the creation of a conversation")
    return facts


def _use_known_blobs(db: apsw.Connection, no: int, fact: Body | UnknownFact) -> None:
    for digest in _blobs_of((fact,)):
        row = fetch_one(db, "get_blob", digest)
        if row is not None:
            execute(db, "put_blob_use", row[0], no)
