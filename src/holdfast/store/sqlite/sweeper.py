"""Free space in slices that each fit between two batches.

A sweep deletes deltas whose body is settled, deleted sessions, unused blobs, and old chat and note rows. Then
it frees the empty pages themselves.
"""

from typing import get_args

import apsw
from msgspec.structs import replace

from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import Delta, MessageSettled
from holdfast.domain.events.stream_fold import message_digest, output_digest
from holdfast.domain.events.tool_facts import ToolSettled
from holdfast.domain.limits import (
    CHAT_RETENTION_MS,
    NOTES_REPLACED_MAX,
    PRUNE_AFTER_MS,
    PURGE_AFTER_MS,
    UNUSED_BLOB_AFTER_MS,
)
from holdfast.domain.state.rows import MessageRow
from holdfast.store.maintenance import SweepResult
from holdfast.store.sqlite import chats, notes
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import MESSAGES, execute, fetch_all, fetch_one, fetch_value
from holdfast.store.sqlite.views import deltas_of, read_message_events

SLICE_ROWS = 500
_DELTAS = get_args(Delta)


def sweep_slice(tx: Tx) -> SweepResult | None:
    """Do one slice of the work that is due; return None if there is none."""
    for part in (_prune, _purge, _delete_unused_blobs, _prune_chats, _prune_notes):
        done = part(tx)
        if done is not None:
            return done
    return None


def free_pages(db: apsw.Connection) -> tuple[int, int]:
    """Return the number of empty pages in the file, and the size of a page."""
    return int(db.pragma("freelist_count")), int(db.pragma("page_size"))


def vacuum_slice(tx: Tx) -> int:
    """Give some empty pages back to the file system; return how many bytes."""
    before, page_bytes = free_pages(tx.db)
    fetch_all(tx.db, "vacuum")
    return (before - free_pages(tx.db)[0]) * page_bytes


def _prune(tx: Tx) -> SweepResult | None:
    swept = SweepResult()
    due = fetch_all(tx.db, "prunable", tx.at - PRUNE_AFTER_MS, 20)
    if not due:
        return None
    for settled_at, no, turn, place in due:
        if swept.deltas >= SLICE_ROWS:
            break
        swept = _prune_one(tx, no, turn, place, swept)
        execute(tx.db, "delete_prunable", settled_at, no, turn, place)
    return swept


def _prune_one(tx: Tx, no: int, turn: int, place: int, swept: SweepResult) -> SweepResult:
    columns = fetch_one(tx.db, "get_message", no, turn, place)
    if columns is None:
        return swept
    row = MESSAGES.read(columns)
    deltas = deltas_of(tx.db, no, row, row.body_seq)
    if not deltas:
        return swept
    (body,) = read_message_events(tx.db, no, row)
    if not deltas_match_body(row, deltas, body):
        return replace(swept, mismatched=swept.mismatched + 1)
    for event in deltas:
        execute(tx.db, "delete_delta", no, event.seq)
    return replace(swept, deltas=swept.deltas + len(deltas))


def deltas_match_body(row: MessageRow, deltas: list[Event], body: Event) -> bool:
    """Return whether the deltas add up to exactly the body. Only then can they go."""
    settled = body.fact
    facts = [fact for event in deltas if isinstance(fact := event.fact, _DELTAS)]
    if isinstance(settled, ToolSettled):
        return output_digest(facts, row.id) == settled.digest
    return isinstance(settled, MessageSettled) and message_digest(facts, row.id) == settled.digest


def _purge(tx: Tx) -> SweepResult | None:
    for (no,) in fetch_all(tx.db, "purgeable_sessions", tx.at - PURGE_AFTER_MS, 20):
        positions = fetch_all(tx.db, "purgeable_events", no, SLICE_ROWS)
        for (position,) in positions:
            execute(tx.db, "unindex", position)
            execute(tx.db, "delete_position", position)
        deltas = fetch_all(tx.db, "purgeable_deltas", no, SLICE_ROWS)
        for (position,) in deltas:
            execute(tx.db, "delete_delta_position", position)
        if positions or deltas:
            return SweepResult(deltas=len(positions) + len(deltas))
        # The newest event of the whole file stays until another one follows it.
        if not fetch_value(tx.db, "session_has_events", no):
            _delete_session(tx, no)
            return SweepResult(sessions=1)
    return None


def _delete_session(tx: Tx, no: int) -> None:
    for (run_id,) in fetch_all(tx.db, "runs_to_purge", no):
        execute(tx.db, "delete_lease", run_id)
    for table in (
        "turns",
        "runs",
        "tools",
        "messages",
        "queued_commits",
        "blob_uses",
        "prunables",
        "session_items",
        "session",
    ):
        execute(tx.db, f"delete_{table}", no)


def _delete_unused_blobs(tx: Tx) -> SweepResult | None:
    unused = fetch_all(tx.db, "unused_blobs", tx.at - UNUSED_BLOB_AFTER_MS, 5)
    for (blob,) in unused:
        execute(tx.db, "delete_chunks", blob)
        execute(tx.db, "delete_blob", blob)
    return SweepResult(blobs=len(unused)) if unused else None


def _prune_chats(tx: Tx) -> SweepResult | None:
    return (
        SweepResult(deltas=deleted)
        if (deleted := chats.prune(tx, tx.at - CHAT_RETENTION_MS, SLICE_ROWS))
        else None
    )


def _prune_notes(tx: Tx) -> SweepResult | None:
    return (
        SweepResult(deltas=deleted) if (deleted := notes.prune(tx, NOTES_REPLACED_MAX, SLICE_ROWS)) else None
    )


def add_results(one: SweepResult, other: SweepResult) -> SweepResult:
    return SweepResult(*(getattr(one, name) + getattr(other, name) for name in one.__struct_fields__))
