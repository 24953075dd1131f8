"""What memory is owed: which stretches of completed turns, and what may happen to each.

A stretch is marked in the transaction that completes its turns, and grows until it is begun. From then on it
is told with the same turns and the same key until it is paid, whoever tries. Projections come first here,
decisions after them: pure, they return the facts to commit, or raise and nothing has happened.
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
"""Whether whoever began to tell of a stretch will never say how that went."""


# From facts to rows.


def enqueue_turn(state: SessionState, turn: int, owner: str, at: Instant) -> None:
    """A turn was completed: the newest stretch grows by it, or it begins another."""
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
    """Mark a completed turn that was restored, unless memory has it, will get it, or must not have it."""
    if not any(
        entry.state != "void" and turn in expand_ranges(entry.turns)
        for entry in state.queued_commits_from(turn)
    ):
        enqueue_turn(state, turn, owner, at)


def remove_turns(state: SessionState, from_turn: int) -> None:
    """Turns from `from_turn` on are undone: they leave what nobody was told; what was begun is taken back."""
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
    """Drop what memory was not told of a session; with `forgets`, have memory forget the rest of it."""
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
    """Memory has let go of a stretch, or cannot: what still stands of it is owed anew unless it is kept.

    What memory cannot let go of, and may have been told, is not told again as if it were new: a person says.
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
    """`debt` is over; what still stands of it is owed anew, as another stretch.

    Not if the session was deleted. Not if it is not to be remembered any more, unless memory had it: what is
    known already stays.
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
    """Drop `debt` if its session was deleted: then it is not tried again, and nobody is asked about it."""
    return (
        replace(entry, state="dropped", retry_at=0)
        if _is_deleted(state) and _is_uncommitted(entry)
        else entry
    )


def _is_deleted(state: SessionState) -> bool:
    session = state.session()
    return session is not None and session.deleted_at is not None


def _is_uncommitted(entry: QueuedCommitRow) -> bool:
    """Whether memory is still to be told of it and nothing is under way, neither telling nor forgetting."""
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
    """The stretch of `rows` that memory is told of next: the oldest.

    One that is to be taken back is not told any more, and one in doubt keeps nobody waiting: it may be long
    until a person says what became of it.
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
    """Begin to tell memory of a stretch as it was read: nothing if it is not so any more, or is being told.

    One that was begun before keeps its key, its turns and what it says (`digest`).
    """
    entry = oldest_pending(view)
    if entry is None or entry.n != n or entry.state not in ("pending", "failed") or entry.turns != turns:
        return []
    return [f.MemoryCommitStarted(
        n, entry.key or key, turns, owner, entry.digest or digest, entry.attempts + 1, process_id, takes_key
    )]  # fmt: skip


def complete(view: SessionStateView, n: int, attempt: int, receipt: str) -> list[f.AnyFact]:
    """Memory has it. Nothing, if this try was taken for lost and another was begun."""
    entry = _current_attempt(view, n, attempt)
    if entry is None:
        return []
    return [f.MemoryCommitted(n, entry.key, entry.from_turn, entry.through_turn, receipt)]


def fail(
    view: SessionStateView, n: int, attempt: int, failure: f.Failure, retry_at: Instant
) -> list[f.AnyFact]:
    """It stays owed, by the same owner."""
    entry = _current_attempt(view, n, attempt)
    if entry is None:
        return []
    return [f.MemoryCommitFailed(n, entry.key, entry.from_turn, entry.through_turn, failure, retry_at)]


def abandon_lost_attempt(
    view: SessionStateView, n: int, is_lost: IsAttemptLost, takes_key: bool, failure: f.Failure
) -> list[f.AnyFact]:
    """A try whose process is gone: told again where the key makes that harmless, else in doubt."""
    entry = view.queued_commit(n)
    if entry is None or entry.state != "committing" or not is_lost(entry):
        return []
    if takes_key:
        return [f.MemoryCommitFailed(n, entry.key, entry.from_turn, entry.through_turn, failure)]
    return [f.MemoryInDoubt(n, entry.key, entry.from_turn, entry.through_turn)]


def resolve(view: SessionStateView, n: int, decision: str, by: f.Actor = "user") -> list[f.AnyFact]:
    """A person's word on a stretch. Raises NoSuchQueuedCommit, CommitDecisionRefused."""
    entry = view.queued_commit(n)
    if entry is None:
        raise NoSuchQueuedCommit(n=n)
    match decision:
        case "retry" if entry.state == "committed" and entry.retraction == "wanted":
            return []  # It is being taken back, and that is tried again by whoever hears this.
        case "retry" if entry.state in ("failed", "in_doubt"):
            return [f.MemoryResolved(n, "retry", by)]
        case "done" if entry.state == "in_doubt":
            return [f.MemoryResolved(n, "done", by)]
        case "drop" if entry.state == "committed" and entry.retraction == "cannot":
            return [f.MemoryResolved(n, "drop", by)]  # Somebody has seen that memory keeps it.
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
    """What came of taking a stretch back; nothing if that is not wanted any more."""
    entry = view.queued_commit(n)
    if entry is None or entry.retraction != "wanted" or entry.state == "committing":
        return []
    match outcome:
        case "done" | "failed" | "cannot":
            return [f.MemoryForgotten(n, entry.key, outcome, failure, retry_at)]
    raise AssertionError(f"{outcome} is no outcome")


def drop_all(view: SessionStateView, by: f.Actor = "server") -> list[f.AnyFact]:
    """Nothing more is told of this session: it is another store's to tell."""
    return [f.MemoryResolved(entry.n, "drop", by) for entry in view.pending_commits()]


def drop_uncommitted(view: SessionStateView, by: f.Actor = "user") -> list[f.AnyFact]:
    """Nothing of this session is told any more, but for what is being told, or taken back."""
    return [
        f.MemoryResolved(entry.n, "drop", by) for entry in view.pending_commits() if _is_uncommitted(entry)
    ]


def _current_attempt(view: SessionStateView, n: int, attempt: int) -> QueuedCommitRow | None:
    entry = view.queued_commit(n)
    if entry is None or entry.state != "committing" or entry.attempts != attempt:
        return None
    return entry
