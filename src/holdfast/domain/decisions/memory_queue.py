"""What memory is owed: which stretches of completed turns, and what may happen to each.

A stretch is marked in the transaction that completes its turns, and grows until it is begun. From then on it
is told with the same turns and the same key until it is paid, whoever tries. Projections come first here,
decisions after them: pure, they return the facts to commit, or raise and nothing has happened.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from holdfast.domain.clock import Instant
from holdfast.domain.errors import DebtRefused, NoSuchDebt
from holdfast.domain.events import facts as f
from holdfast.domain.ids import ProcessId
from holdfast.domain.limits import SEGMENT_TURNS_MAX
from holdfast.domain.ranges import numbers_in, ranges_of
from holdfast.domain.state.rows import DebtRow, Retraction
from holdfast.domain.state.session_state import Book, View

IsLost = Callable[[DebtRow], bool]
"""Whether whoever began to tell of a stretch will never say how that went."""


# From facts to rows.


def mark(book: Book, turn: int, owner: str, at: Instant) -> None:
    """A turn was completed: the newest stretch grows by it, or it begins another."""
    last = book.last_debt()
    if last is not None and last.state == "owed" and last.owner == owner and _count(last) < SEGMENT_TURNS_MAX:
        turns = ranges_of(sorted({*numbers_in(last.turns), turn}))
        book.put_debt(replace(last, turns=turns, through_turn=turns[-1][1], touched_at=at))
    else:
        book.put_debt(DebtRow(_next(book), ((turn, turn),), turn, at, at, owner=owner))


def mark_again(book: Book, turn: int, owner: str, at: Instant) -> None:
    """Mark a completed turn that was restored, unless memory has it, will get it, or must not have it."""
    if not any(debt.state != "void" and turn in numbers_in(debt.turns) for debt in book.debts_from(turn)):
        mark(book, turn, owner, at)


def undo(book: Book, from_turn: int) -> None:
    """Turns from `from_turn` on are undone: they leave what nobody was told; what was begun is taken back."""
    for debt in book.debts_from(from_turn):
        if debt.state == "owed":
            rest = tuple((first, min(last, from_turn - 1)) for first, last in debt.turns if first < from_turn)
            if rest:
                book.put_debt(replace(debt, turns=rest, through_turn=rest[-1][1]))
            else:
                book.put_debt(replace(debt, state="void"))
        elif debt.state not in ("dropped", "void") and not debt.retraction:
            book.put_debt(replace(debt, retraction="wanted", retry_at=0))


def drop_for_deleted_session(book: Book, forgets: bool) -> None:
    """Drop what memory was not told of a session; with `forgets`, have memory forget the rest of it."""
    if forgets:
        undo(book, 0)
    for debt in book.open_debts():
        if _is_untold(debt):
            book.put_debt(replace(debt, state="dropped", retry_at=0))


def note_started(book: Book, fact: f.MemoryCommitStarted, at: Instant) -> None:
    debt = book.debt(fact.segment)
    if debt is not None:
        book.put_debt(replace(
            debt, state="committing", turns=fact.turns, key=fact.key, owner=fact.owner, digest=fact.digest,
            attempts=fact.attempt, process_id=fact.process_id, started_at=at, takes_key=fact.takes_key,
        ))  # fmt: skip


def note_outcome(
    book: Book,
    fact: f.MemoryCommitted | f.MemoryCommitFailed | f.MemoryInDoubt | f.MemoryResolved,
    at: Instant,
) -> None:
    debt = book.debt(fact.segment)
    if debt is None:
        return
    debt = replace(debt, process_id=None)
    match fact:
        case f.MemoryCommitted():
            debt = replace(debt, state="paid", receipt=fact.receipt, failure=None, retry_at=0)
        case f.MemoryCommitFailed():
            retry_at = 0 if debt.retraction else fact.retry_at
            debt = replace(debt, state="failed", failure=fact.failure, retry_at=retry_at)
        case f.MemoryInDoubt():
            debt = replace(debt, state="in_doubt", retry_at=0)
        case f.MemoryResolved(decision="retry") if debt.retraction == "cannot":
            _owe_rest(book, replace(debt, state="void", retry_at=0), at)
            return
        case f.MemoryResolved(decision="retry"):
            debt = replace(debt, state="failed", retry_at=0)
        case f.MemoryResolved(decision="done"):
            debt = replace(debt, state="paid", failure=None, retry_at=0)
        case f.MemoryResolved():
            debt = replace(debt, state="dropped", retraction="", retry_at=0)
    book.put_debt(_dropped_if_deleted(book, debt))


def note_forgotten(book: Book, fact: f.MemoryForgotten, at: Instant) -> None:
    """Memory has let go of a stretch, or cannot: what still stands of it is owed anew unless it is kept.

    What memory cannot let go of, and may have been told, is not told again as if it were new: a person says.
    """
    debt = book.debt(fact.segment)
    if debt is None:
        return
    if fact.outcome == "failed":
        book.put_debt(replace(debt, failure=fact.failure, retry_at=fact.retry_at))
        return
    retraction: Retraction = "cannot" if fact.outcome == "cannot" else "done"
    debt = replace(debt, retraction=retraction, failure=fact.failure, retry_at=0)
    if fact.outcome == "cannot" and debt.state in ("paid", "in_doubt"):
        book.put_debt(_dropped_if_deleted(book, debt))
    else:
        _owe_rest(book, replace(debt, state="void"), at)


def _owe_rest(book: Book, debt: DebtRow, at: Instant) -> None:
    """`debt` is over; what still stands of it is owed anew, as another stretch.

    Not if the session was deleted. Not if it is not to be remembered any more, unless memory had it: what is
    known already stays.
    """
    before, session = book.debt(debt.n), book.session()
    book.put_debt(debt)
    if _is_deleted(book):
        return
    if session is not None and not session.remember and (before is None or before.state != "paid"):
        return
    standing = ranges_of(n for n in numbers_in(debt.turns) if _stands(book, n))
    if standing:
        book.put_debt(DebtRow(_next(book), standing, standing[-1][1], debt.owed_at, at, owner=debt.owner))


def _dropped_if_deleted(book: Book, debt: DebtRow) -> DebtRow:
    """Drop `debt` if its session was deleted: then it is not tried again, and nobody is asked about it."""
    return replace(debt, state="dropped", retry_at=0) if _is_deleted(book) and _is_untold(debt) else debt


def _is_deleted(book: Book) -> bool:
    session = book.session()
    return session is not None and session.deleted_at is not None


def _is_untold(debt: DebtRow) -> bool:
    """Whether memory is still to be told of it and nothing is under way, neither telling nor forgetting."""
    return debt.state in ("owed", "failed", "in_doubt") and debt.retraction != "wanted"


def _stands(book: Book, number: int) -> bool:
    turn = book.turn(number)
    return turn is not None and turn.status in ("live", "cleared")


def _next(book: Book) -> int:
    last = book.last_debt()
    return last.n + 1 if last is not None else 1


def _count(debt: DebtRow) -> int:
    return len(numbers_in(debt.turns))


# Decisions.


def first_payable(rows: Iterable[DebtRow]) -> DebtRow | None:
    """The stretch of `rows` that memory is told of next: the oldest.

    One that is to be taken back is not told any more, and one in doubt keeps nobody waiting: it may be long
    until a person says what became of it.
    """
    states = ("owed", "committing", "failed")
    return next((row for row in rows if row.state in states and row.retraction != "wanted"), None)


def oldest(view: View) -> DebtRow | None:
    return first_payable(view.open_debts())


def start(
    view: View,
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
    debt = oldest(view)
    if debt is None or debt.n != n or debt.state not in ("owed", "failed") or debt.turns != turns:
        return []
    return [f.MemoryCommitStarted(
        n, debt.key or key, turns, owner, debt.digest or digest, debt.attempts + 1, process_id, takes_key
    )]  # fmt: skip


def pay(view: View, n: int, attempt: int, receipt: str) -> list[f.AnyFact]:
    """Memory has it. Nothing, if this try was taken for lost and another was begun."""
    debt = _tried(view, n, attempt)
    if debt is None:
        return []
    return [f.MemoryCommitted(n, debt.key, debt.from_turn, debt.through_turn, receipt)]


def fail(view: View, n: int, attempt: int, failure: f.Failure, retry_at: Instant) -> list[f.AnyFact]:
    """It stays owed, by the same owner."""
    debt = _tried(view, n, attempt)
    if debt is None:
        return []
    return [f.MemoryCommitFailed(n, debt.key, debt.from_turn, debt.through_turn, failure, retry_at)]


def give_up(view: View, n: int, is_lost: IsLost, takes_key: bool, failure: f.Failure) -> list[f.AnyFact]:
    """A try whose process is gone: told again where the key makes that harmless, else in doubt."""
    debt = view.debt(n)
    if debt is None or debt.state != "committing" or not is_lost(debt):
        return []
    if takes_key:
        return [f.MemoryCommitFailed(n, debt.key, debt.from_turn, debt.through_turn, failure)]
    return [f.MemoryInDoubt(n, debt.key, debt.from_turn, debt.through_turn)]


def resolve(view: View, n: int, decision: str, by: f.Actor = "user") -> list[f.AnyFact]:
    """A person's word on a stretch. Raises NoSuchDebt, DebtRefused."""
    debt = view.debt(n)
    if debt is None:
        raise NoSuchDebt(n=n)
    match decision:
        case "retry" if debt.state == "paid" and debt.retraction == "wanted":
            return []  # It is being taken back, and that is tried again by whoever hears this.
        case "retry" if debt.state in ("failed", "in_doubt"):
            return [f.MemoryResolved(n, "retry", by)]
        case "done" if debt.state == "in_doubt":
            return [f.MemoryResolved(n, "done", by)]
        case "drop" if debt.state == "paid" and debt.retraction == "cannot":
            return [f.MemoryResolved(n, "drop", by)]  # Somebody has seen that memory keeps it.
        case "drop" if debt.is_open and debt.state != "committing":
            return [f.MemoryResolved(n, "drop", by)]
    raise DebtRefused(n=n, state=debt.state, decision=decision)


def forget(
    view: View,
    n: int,
    outcome: str,
    failure: f.Failure | None = None,
    retry_at: Instant = 0,
) -> list[f.AnyFact]:
    """What came of taking a stretch back; nothing if that is not wanted any more."""
    debt = view.debt(n)
    if debt is None or debt.retraction != "wanted" or debt.state == "committing":
        return []
    match outcome:
        case "done" | "failed" | "cannot":
            return [f.MemoryForgotten(n, debt.key, outcome, failure, retry_at)]
    raise AssertionError(f"{outcome} is no outcome")


def drop_all(view: View, by: f.Actor = "server") -> list[f.AnyFact]:
    """Nothing more is told of this session: it is another store's to tell."""
    return [f.MemoryResolved(debt.n, "drop", by) for debt in view.open_debts()]


def drop_untold(view: View, by: f.Actor = "user") -> list[f.AnyFact]:
    """Nothing of this session is told any more, but for what is being told, or taken back."""
    return [f.MemoryResolved(debt.n, "drop", by) for debt in view.open_debts() if _is_untold(debt)]


def _tried(view: View, n: int, attempt: int) -> DebtRow | None:
    debt = view.debt(n)
    if debt is None or debt.state != "committing" or debt.attempts != attempt:
        return None
    return debt
