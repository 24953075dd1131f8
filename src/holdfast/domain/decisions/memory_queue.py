"""Manage the memory queue: which segments of completed turns to commit, and what may happen to each.

The transaction that completes a turn adds it to a segment. A segment grows until its first commit starts;
every try from then on sends the same turns under the same key. Projections come first in this module, then
decisions: pure functions that return the facts to commit, or raise.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from holdfast.domain.clock import Instant
from holdfast.domain.errors import CommitDecisionRefused, NoSuchQueuedCommit
from holdfast.domain.events import facts as f
from holdfast.domain.ids import ProcessId
from holdfast.domain.limits import SEGMENT_TURNS_MAX
from holdfast.domain.ranges import expand_ranges, to_ranges
from holdfast.domain.state.rows import QueuedCommitRow, Retraction
from holdfast.domain.state.session_state import SessionState, SessionStateView

IsAttemptLost = Callable[[QueuedCommitRow], bool]
"""Return whether the process that started a commit will never report its outcome."""


# From facts to rows.


def enqueue_turn(state: SessionState, turn: int, owner: str, at: Instant) -> None:
    """Add a completed turn to the newest segment, or start another."""
    last = state.last_queued_commit()
    if (
        last is not None
        and last.state == "pending"
        and last.owner == owner
        and _turn_count(last) < SEGMENT_TURNS_MAX
    ):
        turns = to_ranges(sorted({*expand_ranges(last.turns), turn}))
        state.put_queued_commit(replace(last, turns=turns, through_turn=turns[-1][1], touched_at=at))
    else:
        state.put_queued_commit(
            QueuedCommitRow(_next_number(state), ((turn, turn),), turn, at, at, owner=owner)
        )


def enqueue_restored_turn(state: SessionState, turn: int, owner: str, at: Instant) -> None:
    """Enqueue a restored turn, unless memory has it, will get it, or must not have it."""
    if not any(
        entry.state != "void" and turn in expand_ranges(entry.turns)
        for entry in state.queued_commits_from(turn)
    ):
        enqueue_turn(state, turn, owner, at)


def remove_turns(state: SessionState, from_turn: int) -> None:
    """Remove undone turns: drop them from pending segments, and retract segments that were started."""
    for entry in state.queued_commits_from(from_turn):
        if entry.state == "pending":
            rest = tuple(
                (first, min(last, from_turn - 1)) for first, last in entry.turns if first < from_turn
            )
            if rest:
                state.put_queued_commit(replace(entry, turns=rest, through_turn=rest[-1][1]))
            else:
                state.put_queued_commit(replace(entry, state="void"))
        elif entry.state not in ("dropped", "void") and not entry.retraction:
            state.put_queued_commit(replace(entry, retraction="wanted", retry_at=0))


def drop_for_deleted_session(state: SessionState, forgets: bool) -> None:
    """Drop a deleted session's uncommitted entries; with `forgets`, retract the committed ones."""
    if forgets:
        remove_turns(state, 0)
    for entry in state.pending_commits():
        if _is_uncommitted(entry):
            state.put_queued_commit(replace(entry, state="dropped", retry_at=0))


def apply_started(state: SessionState, fact: f.MemoryCommitStarted, at: Instant) -> None:
    entry = state.queued_commit(fact.segment)
    if entry is not None:
        state.put_queued_commit(replace(
            entry, state="committing", turns=fact.turns, key=fact.key, owner=fact.owner, digest=fact.digest,
            attempts=fact.attempt, process_id=fact.process_id, started_at=at, takes_key=fact.takes_key,
        ))  # fmt: skip


def apply_outcome(
    state: SessionState,
    fact: f.MemoryCommitted | f.MemoryCommitFailed | f.MemoryInDoubt | f.MemoryResolved,
    at: Instant,
) -> None:
    entry = state.queued_commit(fact.segment)
    if entry is None:
        return
    entry = replace(entry, process_id=None)
    match fact:
        case f.MemoryCommitted():
            entry = replace(entry, state="committed", receipt=fact.receipt, failure=None, retry_at=0)
        case f.MemoryCommitFailed():
            retry_at = 0 if entry.retraction else fact.retry_at
            entry = replace(entry, state="failed", failure=fact.failure, retry_at=retry_at)
        case f.MemoryInDoubt():
            entry = replace(entry, state="in_doubt", retry_at=0)
        case f.MemoryResolved(decision="retry") if entry.retraction == "cannot":
            _requeue_rest(state, replace(entry, state="void", retry_at=0), at)
            return
        case f.MemoryResolved(decision="retry"):
            entry = replace(entry, state="failed", retry_at=0)
        case f.MemoryResolved(decision="done"):
            entry = replace(entry, state="committed", failure=None, retry_at=0)
        case f.MemoryResolved():
            entry = replace(entry, state="dropped", retraction="", retry_at=0)
    state.put_queued_commit(_dropped_if_deleted(state, entry))


def apply_forgotten(state: SessionState, fact: f.MemoryForgotten, at: Instant) -> None:
    """Apply the outcome of a retraction: enqueue the turns that are still kept, unless the provider cannot.

    If the provider cannot forget what it may have received, those turns are not committed again: a person
    decides.
    """
    entry = state.queued_commit(fact.segment)
    if entry is None:
        return
    if fact.outcome == "failed":
        state.put_queued_commit(replace(entry, failure=fact.failure, retry_at=fact.retry_at))
        return
    retraction: Retraction = "cannot" if fact.outcome == "cannot" else "done"
    entry = replace(entry, retraction=retraction, failure=fact.failure, retry_at=0)
    if fact.outcome == "cannot" and entry.state in ("committed", "in_doubt"):
        state.put_queued_commit(_dropped_if_deleted(state, entry))
    else:
        _requeue_rest(state, replace(entry, state="void"), at)


def _requeue_rest(state: SessionState, entry: QueuedCommitRow, at: Instant) -> None:
    """Close `entry` and enqueue the turns of it that are still kept as another segment.

    Enqueue nothing if the session was deleted, or if remembering was turned off before memory had them.
    """
    before, session = state.queued_commit(entry.n), state.session()
    state.put_queued_commit(entry)
    if _is_deleted(state):
        return
    if session is not None and not session.remember and (before is None or before.state != "committed"):
        return
    remaining = to_ranges(n for n in expand_ranges(entry.turns) if _is_kept_turn(state, n))
    if remaining:
        state.put_queued_commit(
            QueuedCommitRow(
                _next_number(state), remaining, remaining[-1][1], entry.queued_at, at, owner=entry.owner
            )
        )


def _dropped_if_deleted(state: SessionState, entry: QueuedCommitRow) -> QueuedCommitRow:
    """Drop `entry` if its session was deleted, so that nothing retries it and nobody is asked about it."""
    return (
        replace(entry, state="dropped", retry_at=0)
        if _is_deleted(state) and _is_uncommitted(entry)
        else entry
    )


def _is_deleted(state: SessionState) -> bool:
    session = state.session()
    return session is not None and session.deleted_at is not None


def _is_uncommitted(entry: QueuedCommitRow) -> bool:
    """Return whether it waits for a commit, with no commit or retraction under way."""
    return entry.state in ("pending", "failed", "in_doubt") and entry.retraction != "wanted"


def _is_kept_turn(state: SessionState, number: int) -> bool:
    turn = state.turn(number)
    return turn is not None and turn.status in ("live", "cleared")


def _next_number(state: SessionState) -> int:
    last = state.last_queued_commit()
    return last.n + 1 if last is not None else 1


def _turn_count(entry: QueuedCommitRow) -> int:
    return len(expand_ranges(entry.turns))


# Decisions.


def first_pending(rows: Iterable[QueuedCommitRow]) -> QueuedCommitRow | None:
    """Return the entry to commit next: the oldest.

    An entry to retract is not committed. An entry in doubt does not block later ones, since a person may take
    long to resolve it.
    """
    states = ("pending", "committing", "failed")
    return next((row for row in rows if row.state in states and row.retraction != "wanted"), None)


def oldest_pending(view: SessionStateView) -> QueuedCommitRow | None:
    return first_pending(view.pending_commits())


def start(
    view: SessionStateView,
    n: int,
    turns: f.Ranges,
    owner: str,
    key: str,
    digest: str,
    process_id: ProcessId,
    takes_key: bool = False,
) -> list[f.AnyFact]:
    """Start to commit a segment as it was read; return nothing if it changed since, or is being committed.

    A segment that was started before keeps its key, its turns and its digest.
    """
    entry = oldest_pending(view)
    if entry is None or entry.n != n or entry.state not in ("pending", "failed") or entry.turns != turns:
        return []
    return [f.MemoryCommitStarted(
        n, entry.key or key, turns, owner, entry.digest or digest, entry.attempts + 1, process_id, takes_key
    )]  # fmt: skip


def complete(view: SessionStateView, n: int, attempt: int, receipt: str) -> list[f.AnyFact]:
    """Record a successful commit; return nothing if another attempt has replaced this one."""
    entry = _current_attempt(view, n, attempt)
    if entry is None:
        return []
    return [f.MemoryCommitted(n, entry.key, entry.from_turn, entry.through_turn, receipt)]


def fail(
    view: SessionStateView, n: int, attempt: int, failure: f.Failure, retry_at: Instant
) -> list[f.AnyFact]:
    """Record a failed commit, which its owner retries at `retry_at`."""
    entry = _current_attempt(view, n, attempt)
    if entry is None:
        return []
    return [f.MemoryCommitFailed(n, entry.key, entry.from_turn, entry.through_turn, failure, retry_at)]


def abandon_lost_attempt(
    view: SessionStateView, n: int, is_lost: IsAttemptLost, takes_key: bool, failure: f.Failure
) -> list[f.AnyFact]:
    """Settle an attempt whose process is gone: retry it if a key makes that safe, else put it in doubt."""
    entry = view.queued_commit(n)
    if entry is None or entry.state != "committing" or not is_lost(entry):
        return []
    if takes_key:
        return [f.MemoryCommitFailed(n, entry.key, entry.from_turn, entry.through_turn, failure)]
    return [f.MemoryInDoubt(n, entry.key, entry.from_turn, entry.through_turn)]


def resolve(view: SessionStateView, n: int, decision: str, by: f.Actor = "user") -> list[f.AnyFact]:
    """Apply a person's decision on an entry. Raises NoSuchQueuedCommit, CommitDecisionRefused."""
    entry = view.queued_commit(n)
    if entry is None:
        raise NoSuchQueuedCommit(n=n)
    match decision:
        case "retry" if entry.state == "committed" and entry.retraction == "wanted":
            return []  # The retraction is under way; the caller retries it.
        case "retry" if entry.state in ("failed", "in_doubt"):
            return [f.MemoryResolved(n, "retry", by)]
        case "done" if entry.state == "in_doubt":
            return [f.MemoryResolved(n, "done", by)]
        case "drop" if entry.state == "committed" and entry.retraction == "cannot":
            return [f.MemoryResolved(n, "drop", by)]  # A person acknowledges that memory keeps it.
        case "drop" if entry.is_open and entry.state != "committing":
            return [f.MemoryResolved(n, "drop", by)]
    raise CommitDecisionRefused(n=n, state=entry.state, decision=decision)


def record_retraction(
    view: SessionStateView,
    n: int,
    outcome: str,
    failure: f.Failure | None = None,
    retry_at: Instant = 0,
) -> list[f.AnyFact]:
    """Record the outcome of a retraction; return nothing if none is wanted any more."""
    entry = view.queued_commit(n)
    if entry is None or entry.retraction != "wanted" or entry.state == "committing":
        return []
    match outcome:
        case "done" | "failed" | "cannot":
            return [f.MemoryForgotten(n, entry.key, outcome, failure, retry_at)]
    raise AssertionError(f"{outcome} is no outcome")


def drop_all(view: SessionStateView, by: f.Actor = "server") -> list[f.AnyFact]:
    """Drop every entry of this session: another store commits them."""
    return [f.MemoryResolved(entry.n, "drop", by) for entry in view.pending_commits()]


def drop_uncommitted(view: SessionStateView, by: f.Actor = "user") -> list[f.AnyFact]:
    """Drop the entries of this session that no commit or retraction is working on."""
    return [
        f.MemoryResolved(entry.n, "drop", by) for entry in view.pending_commits() if _is_uncommitted(entry)
    ]


def _current_attempt(view: SessionStateView, n: int, attempt: int) -> QueuedCommitRow | None:
    entry = view.queued_commit(n)
    if entry is None or entry.state != "committing" or entry.attempts != attempt:
        return None
    return entry
