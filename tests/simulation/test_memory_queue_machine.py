"""Whatever happens to a conversation with memory, every completed turn is committed, and none twice.

A state machine completes, undoes and clears turns in a real store, under changing owners, while commit
attempts begin, finish late, fail or are lost with their process, and people resolve commits in doubt.
"""

import asyncio
import itertools
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.domain.clock import FakeClock
from holdfast.domain.decisions import memory_queue, turns
from holdfast.domain.errors import CommitDecisionRefused, NoSuchQueuedCommit
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.ids import IdGenerator, ProcessId
from holdfast.domain.ranges import expand_ranges
from holdfast.domain.state.projections import fold
from holdfast.domain.state.rows import QueuedCommitRow
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.memory_queue_session import complete_turn

SEEDS = st.integers(0, 2**32 - 1)
FAILURE = f.Failure("x", "no")


class MemoryQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-debts-"))
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        numbers = itertools.count(1)
        self.ids = IdGenerator(self.clock, lambda bits: next(numbers))
        self.session_id = self.ids.session()
        self.tries: list[QueuedCommitRow] = []
        """Attempts as they were started: each may return its result at any time."""
        self.started: dict[str, f.Ranges] = {}
        self.keyless: set[str] = set()
        """Keys that a provider without keys may have stored, and that nobody has asked to repeat."""

    @initialize()
    def open(self) -> None:
        self.store = self.run(SqliteStore.open(self.folder, "normal", clock=self.clock))
        self.decide(lambda view: turns.create_session(view, f.SessionCreated()))

    def run(self, work):  # type: ignore[no-untyped-def]
        return self.runner.run(work)

    def teardown(self) -> None:
        try:
            if hasattr(self, "store"):
                assert list(self.run(self.store.check(False, lambda done, total: None))) == []
                self.run(self.store.close())
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)

    def decide(self, decision: Callable[[SessionStateView], Facts]) -> Facts:
        decided: list[Facts] = []

        def keep(view: SessionStateView) -> Facts:
            decided[:] = [decision(view)]
            return decided[0]

        self.clock.advance(1)
        self.run(self.store.append(Append(self.session_id, keep)))
        return decided[0]

    def rows(self) -> list[QueuedCommitRow]:
        return list(self.run(self.store.queued_commits(self.session_id)))

    def pick_row(self, rng: random.Random, *states: str) -> QueuedCommitRow | None:
        found = [row for row in self.rows() if row.is_open and (not states or row.state in states)]
        return rng.choice(found) if found else None

    @rule(seed=SEEDS)
    def run_random_actions(self, seed: int) -> None:
        """Do some random actions, chosen by `seed`."""
        rng = random.Random(seed)
        acts = (
            self.complete,
            self.undo,
            self.clear,
            self.resolve,
            self.start,
            self.finish,
            self.kill_process,
            self.retract,
        )
        for act in rng.choices(acts, weights=(6, 2, 0.3, 1, 6, 4, 3, 4), k=6):
            act(rng)
            self.check()

    # What people and agents do.

    def complete(self, rng: random.Random) -> None:
        owner = rng.choice(["", "a", "a", "a", "b", None])
        for _ in range(rng.randint(1, 3)):
            self.decide(lambda view: complete_turn(view, self.session_id, self.ids, owner))

    def undo(self, rng: random.Random) -> None:
        def decision(view: SessionStateView) -> Facts:
            live = view.live_turns(0)[-3:]
            return turns.undo(view, self.session_id, rng.choice(live).id) if live else ()

        self.decide(decision)

    def clear(self, rng: random.Random) -> None:
        self.decide(lambda view: turns.clear(view, self.session_id))

    def resolve(self, rng: random.Random) -> None:
        row, decision = self.pick_row(rng), rng.choice(["retry", "done", "drop"])
        try:
            self.decide(partial(memory_queue.resolve, n=row.n if row is not None else 99, decision=decision))
        except (NoSuchQueuedCommit, CommitDecisionRefused):
            return
        if row is not None:
            self.keyless.discard(row.key)

    # What becomes of telling it.

    def start(self, rng: random.Random) -> None:
        row = memory_queue.first_pending(self.rows())
        if row is None:
            return
        stale, owner, process = rng.random() < 0.1, rng.choice("ab"), ProcessId(f"p_{len(self.tries)}")
        read = row.turns if not stale else ((1, 999),)
        key = self.ids.commit_key()
        begun = self.decide(lambda view: memory_queue.start(view, row.n, read, owner, key, "d", process))
        assert bool(begun) == (not stale and row.state in ("pending", "failed"))
        if begun:
            after = self.rows()[row.n - 1]
            assert self.started.setdefault(after.key, after.turns) == after.turns
            doubtful = {number for each in self.keyless for number in expand_ranges(self.started[each])}
            again = doubtful & set(expand_ranges(after.turns))
            assert not again, "they may have been told, and nobody said to tell them again"
            self.tries.append(after)

    def finish(self, rng: random.Random) -> None:
        """Finish one of the attempts, perhaps long after it was considered lost."""
        if not self.tries:
            return
        tried = rng.choice(self.tries[-3:])
        before = self.rows()[tried.n - 1]
        is_last = before.state == "committing" and before.attempts == tried.attempts
        pay = partial(memory_queue.complete, n=tried.n, attempt=tried.attempts, receipt="r")
        fail = partial(memory_queue.fail, n=tried.n, attempt=tried.attempts, failure=FAILURE, retry_at=5)
        assert bool(self.decide(rng.choice([pay, fail]))) == is_last

    def kill_process(self, rng: random.Random) -> None:
        row, takes_key, lost = self.pick_row(rng, "committing"), rng.random() < 0.6, rng.random() < 0.9
        if row is None:
            return
        give_up = partial(
            memory_queue.abandon_lost_attempt, n=row.n, is_lost=lambda _: lost, takes_key=takes_key,
            failure=FAILURE
        )  # fmt: skip
        assert bool(self.decide(give_up)) == lost
        if lost and not takes_key:
            self.keyless.add(row.key)

    def retract(self, rng: random.Random) -> None:
        wanted = [row for row in self.rows() if row.retraction == "wanted"]
        if not wanted:
            return
        row, outcome = rng.choice(wanted), rng.choice(["done", "done", "failed", "cannot"])
        failure = None if outcome == "done" else FAILURE
        facts = self.decide(
            partial(memory_queue.record_retraction, n=row.n, outcome=outcome, failure=failure)
        )
        assert bool(facts) == (row.state != "committing")
        if facts and outcome == "done":
            self.keyless.discard(row.key)

    # What holds all along.

    def check(self) -> None:
        events: list[Event] = []
        while batch := self.run(self.store.read(self.session_id, events[-1].seq if events else 0, 1000)):
            events += batch
        book, rows = fold(self.session_id, events), self.rows()
        assert list(book.queued_commits.values()) == rows
        owed = {e.fact.run_id for e in events if isinstance(e.fact, f.RunCompleted) and e.fact.owed}
        held = Counter(number for row in rows if row.state != "void" for number in expand_ranges(row.turns))
        waiting = {number for row in rows if row.state == "pending" for number in expand_ranges(row.turns)}
        for number, turn in book.turns.items():
            if turn.run_id in owed and turn.status in ("live", "cleared"):
                assert held[number] == 1, (number, rows)
            assert turn.status != "undone" or number not in waiting
        for row in rows:
            self.check_row(row)

    def check_row(self, row: QueuedCommitRow) -> None:
        """Check that a started commit keeps its turns, and that a retracted one is not committed any more."""
        assert row.through_turn == row.turns[-1][1]
        if row.state in ("committed", "committing", "failed", "in_doubt"):
            assert self.started[row.key] == row.turns
        if row.retraction == "wanted":
            assert row.state not in ("pending", "dropped", "void")


TestDebts = MemoryQueueMachine.TestCase
TestDebts.settings = settings(
    max_examples=25,
    stateful_step_count=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
