"""A conversation as the memory queue sees it: turns that are completed, undone, committed and retracted."""

from collections.abc import Callable

from holdfast.domain.clock import FakeClock
from holdfast.domain.decisions import memory_queue, runs, turns
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import IdGenerator, ProcessId, SessionId
from holdfast.domain.state.projections import fold, project
from holdfast.domain.state.rows import QueuedCommitRow
from holdfast.domain.state.session_state import Facts, InMemorySessionState, SessionStateView

HERE = ProcessId("p_here")


def complete_turn(
    view: SessionStateView, session_id: SessionId, ids: IdGenerator, owner: str | None
) -> Facts:
    """Return the facts of a turn from its acceptance to its end; without an owner it is not queued."""
    book = _PendingFacts(view)
    for decide in (
        lambda: turns.accept_turn(book.view, session_id, ids, (Text("hello"),), None),
        lambda: runs.start(book.view.open_runs()[-1]),
        lambda: runs.complete(book.view.open_runs()[-1], owner is not None, owner or ""),
    ):
        book.add(session_id, decide())
    return book.facts


class _PendingFacts:
    """The state of a session while facts of one change are still collected."""

    def __init__(self, view: SessionStateView) -> None:
        self.view = InMemorySessionState()
        self.facts: list[f.AnyFact] = []
        row = view.session()
        assert row is not None
        self.view.put_session(row)
        for turn in view.live_turns(0):
            self.view.put_turn(turn)

    def add(self, session_id: SessionId, facts: list[f.AnyFact]) -> None:
        for fact in facts:
            self.facts.append(fact)
            project(self.view, session_id, len(self.facts), 0, fact)


class MemoryQueueSession:
    """A conversation in memory; `events` is its journal."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ids = IdGenerator(self.clock)
        self.id = self.ids.session()
        self.book = InMemorySessionState()
        self.events: list[Event] = []
        self.decide(lambda view: [f.SessionCreated()])

    def decide(self, decision: Callable[[SessionStateView], Facts]) -> Facts:
        facts = decision(self.book)
        for fact in facts:
            self.clock.advance(1)
            event = Event(len(self.events) + 1, self.clock.now_ms(), *encode(fact))
            self.events.append(event)
            project(self.book, self.id, event.seq, event.at, fact)
        assert fold(self.id, self.events).queued_commits == self.book.queued_commits
        return facts

    def complete_turns(self, count: int = 1, owner: str | None = "me") -> "MemoryQueueSession":
        for _ in range(count):
            self.decide(lambda view: complete_turn(view, self.id, self.ids, owner))
        return self

    def undo(self, number: int) -> "MemoryQueueSession":
        turn = self.book.turns[number]
        self.decide(lambda view: turns.undo(view, self.id, turn.id))
        return self

    def clear(self) -> "MemoryQueueSession":
        self.decide(lambda view: turns.clear(view, self.id))
        return self

    def delete(self, notes: bool = False) -> "MemoryQueueSession":
        self.decide(lambda view: turns.delete(view, self.id, notes=notes))
        return self

    def start_commit(self, owner: str = "me") -> QueuedCommitRow:
        """Start the commit of the oldest pending entry; there must be one."""
        row = memory_queue.oldest_pending(self.book)
        assert row is not None
        facts = self.decide(
            lambda view: memory_queue.start(
                view, row.n, row.turns, owner, self.ids.commit_key(), "digest", HERE
            )
        )
        assert facts
        return self.book.queued_commits[row.n]

    def commit(self, row: QueuedCommitRow, receipt: str = "receipt") -> Facts:
        return self.decide(lambda view: memory_queue.complete(view, row.n, row.attempts, receipt))

    def fail_commit(self, row: QueuedCommitRow, retry_at: int = 99) -> Facts:
        failure = f.Failure("x", "no")
        return self.decide(lambda view: memory_queue.fail(view, row.n, row.attempts, failure, retry_at))

    def give_up(self, row: QueuedCommitRow, takes_key: bool) -> Facts:
        failure = f.Failure("x", "gone")
        return self.decide(
            lambda view: memory_queue.abandon_lost_attempt(view, row.n, lambda _: True, takes_key, failure)
        )

    def resolve(self, n: int, decision: str) -> Facts:
        return self.decide(lambda view: memory_queue.resolve(view, n, decision))

    def forget(self, n: int, outcome: str, retry_at: int = 0) -> Facts:
        failure = f.Failure("x", "no") if outcome != "done" else None
        return self.decide(lambda view: memory_queue.record_retraction(view, n, outcome, failure, retry_at))

    @property
    def segments(self) -> list[tuple[str, f.Ranges]]:
        return [(row.state, row.turns) for row in self.book.queued_commits.values()]
