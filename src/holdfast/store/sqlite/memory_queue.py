"""Read the memory queue."""

from collections.abc import Sequence
from typing import Any

import apsw
import msgspec

from holdfast.domain.clock import CLOCK_MARGIN_MS, Instant
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import COMMIT_RETRY_MS_MAX
from holdfast.domain.ranges import expand_ranges
from holdfast.domain.state.rows import QueuedCommit, QueuedCommitRow
from holdfast.store.ports import StoredMessage
from holdfast.store.sqlite.sql import MESSAGES, QUEUED_COMMITS, fetch_all, fetch_one, read_transaction
from holdfast.store.sqlite.views import read_message_events


def queued_commits(db: apsw.Connection, session_id: SessionId, deleted: bool) -> Sequence[QueuedCommitRow]:
    no = _locate(db, session_id, deleted)
    return [QUEUED_COMMITS.read(row) for row in fetch_all(db, "all_queued_commits", no)] if no else []


def pending_commits(db: apsw.Connection, limit: int) -> Sequence[QueuedCommit]:
    return [_queued_commit(row) for row in fetch_all(db, "pending_commits", limit)]


def unretracted_commits(db: apsw.Connection, limit: int) -> Sequence[QueuedCommit]:
    return [_queued_commit(row) for row in fetch_all(db, "unretracted_commits", limit)]


def pending_commits_of(db: apsw.Connection, session_id: SessionId) -> Sequence[QueuedCommit]:
    return [_queued_commit(row) for row in fetch_all(db, "pending_commits_of", session_id)]


def due_commits(
    db: apsw.Connection, quiet_since: Instant, now: Instant, limit: int, owners_in_backoff: Sequence[str]
) -> Sequence[QueuedCommit]:
    owners = msgspec.json.encode(list(owners_in_backoff)).decode()
    # Times later than any that could be set by now come from a wrong clock.
    wrong, wrong_retry = now + CLOCK_MARGIN_MS, now + CLOCK_MARGIN_MS + COMMIT_RETRY_MS_MAX
    found = fetch_all(db, "due_commits", quiet_since, now, limit, owners, wrong, wrong_retry)
    return [_queued_commit(row) for row in found]


def totals(db: apsw.Connection) -> tuple[int, Instant]:
    row = fetch_one(db, "memory_queue_totals")
    return (row[0], row[1]) if row is not None else (0, 0)


def turn_messages(
    db: apsw.Connection, session_id: SessionId, turns: Ranges, number: int
) -> Sequence[StoredMessage]:
    with read_transaction(db):
        numbered = fetch_one(db, "numbered_head", number, session_id) if number else None
        row = numbered if number else fetch_one(db, "session_head", session_id)
        no = int(row[0]) if row is not None else 0
        found = [
            MESSAGES.read(row)
            for turn in (expand_ranges(turns) if no else ())
            for row in fetch_all(db, "messages_of_turn", no, turn)
        ]
        return [StoredMessage(row, True, read_message_events(db, no, row)) for row in found]


def _locate(db: apsw.Connection, session_id: SessionId, deleted: bool) -> int:
    row = fetch_one(db, "deleted_session_head" if deleted else "session_head", session_id)
    return int(row[0]) if row is not None else 0


def _queued_commit(row: tuple[Any, ...]) -> QueuedCommit:
    return QueuedCommit(row[0], row[1], row[2], bool(row[3]), row[4], QUEUED_COMMITS.read(row[5:]))
