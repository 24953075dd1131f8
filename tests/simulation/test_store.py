"""Whatever is done to a store, by any process, it equals the fold of the appended events.

The model is the list of events of each session. A state machine appends, settles, prunes, undoes, forks,
claims, writes from a second store on the same folder, imports, deletes and reopens; all along, the rows and
pages of the store equal the fold of the model, at every cut, and doctor finds nothing.
"""

import asyncio
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast.domain.clock import FakeClock
from holdfast.domain.decisions import forks, turns
from holdfast.domain.errors import HoldfastError, LeaseHeld, LeaseLost, NoSuchRun, NoSuchSession, RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.stream_fold import message_digest, output_digest
from holdfast.domain.ids import IdGenerator, RunId, SessionId
from holdfast.domain.limits import LEASE_GRACE_MS, PRUNE_AFTER_MS, PURGE_AFTER_MS
from holdfast.domain.state.projections import fold
from holdfast.domain.state.session_state import Facts, InMemorySessionState, SessionStateView
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.domain.transcript.transcript import fold as fold_transcript
from holdfast.store.ports import Append, Lease, StoredMessage
from holdfast.store.sqlite.store import SqliteStore
from tests.simulation.session_actions import ACTION_WEIGHTS, Action, ActionContext

PICK = st.integers(0, 11)
SEEDS = st.integers(0, 2**32 - 1)
SCRAPS = ("words ", "会议 ", "é", "\n", "getUserName", "x" * 300, " ")
LEASE_MS = 30_000


class Bookmark(msgspec.Struct):
    """A page of a reader, to be updated by the events after it."""

    session_id: SessionId
    head: int
    fold: TranscriptFold


def subject_of(delta: Event) -> str:
    """Return the message or call of a delta; None for any other event."""
    fact = delta.fact
    if isinstance(fact, f.ToolOutputAppended):
        return fact.call_id
    return fact.message_id if isinstance(fact, f.Delta) else ""


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-simulation-"))
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        numbers = itertools.count(1)
        self.ids = IdGenerator(self.clock, lambda bits: next(numbers))
        self.stores: list[SqliteStore] = []
        self.journals: dict[SessionId, list[Event]] = {}
        self.leases: dict[RunId, tuple[Lease, int]] = {}
        self.bookmarks: list[Bookmark] = []
        self.days = 0

    @initialize()
    def open(self) -> None:
        for _ in range(2):
            self.stores.append(self.run(SqliteStore.open(self.folder, "normal", clock=self.clock)))
        self.create(0)

    def run(self, work):  # type: ignore[no-untyped-def]
        return self.runner.run(work)

    def teardown(self) -> None:
        try:
            for session_id in self.journals:
                self.compare(session_id)
            if self.stores:
                assert list(self.run(self.stores[0].check(False, lambda done, total: None))) == []
            for store in self.stores:
                self.run(store.close())
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)

    # What the rules stand on.

    def session(self, pick: int) -> SessionId:
        names = list(self.journals)
        return names[pick % len(names)]

    def append(
        self,
        pick: int,
        session_id: SessionId,
        decide: Callable[[SessionStateView], Facts],
        lease: Lease | None = None,
    ) -> bool:
        """Append the result of `decide` through one of the stores; the model gets the same facts."""
        decided: list[Facts] = []

        def remembered(view: SessionStateView) -> Facts:
            decided.append(decide(view))
            return decided[-1]

        journal = self.journals.get(session_id, [])
        change = Append(session_id, remembered, fence=lease.fence if lease else None)
        try:
            (receipt,) = self.run(self.stores[pick % 2].append(change))
        except HoldfastError:
            decided.clear()
            return False
        events = [
            Event(seq, self.clock.now_ms(), *encode(fact))
            for seq, fact in enumerate(decided[-1], len(journal) + 1)
        ]
        assert (receipt.first_seq, receipt.last_seq) == (len(journal) + 1, len(journal) + len(events))
        self.journals[session_id] = [*journal, *events]
        return True

    def create(self, pick: int) -> None:
        self.append(
            pick, self.ids.session(), lambda view: turns.create_session(view, f.SessionCreated("new"))
        )

    def read_all(self, store: SqliteStore, session_id: SessionId) -> list[Event]:
        found: list[Event] = []
        while batch := self.run(store.read(session_id, found[-1].seq if found else 0, 50)):
            found += batch
        return found

    def pages(self, store: SqliteStore, session_id: SessionId, limit: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        before: str | None = None
        while True:
            page = self.run(store.messages(session_id, before, limit))
            found[:0] = page.messages
            before = page.before
            if before is None:
                return found

    # What must hold.

    def compare(self, session_id: SessionId) -> None:
        journal, store = self.journals[session_id], random.choice(self.stores)
        stored = self.read_all(store, session_id)
        by_seq = {event.seq: event for event in journal}
        assert [by_seq[event.seq] for event in stored] == stored
        gone = by_seq.keys() - {event.seq for event in stored}
        book = fold(session_id, journal)
        self.compare_pruned(journal, [by_seq[seq] for seq in gone], book)
        assert vars(fold(session_id, stored)) == vars(book)
        self.compare_rows(store, session_id, book)
        self.compare_cuts(session_id, journal, stored)

    def compare_pruned(self, expected: list[Event], gone: list[Event], book: InMemorySessionState) -> None:
        """Check that only deltas are pruned, an hour after their body, and only if they say the same."""
        rows = {row.id: row for row in book.messages.values()}
        for subject in {subject_of(event) for event in gone}:
            body = expected[rows[subject].body_seq - 1]
            deltas = [e.fact for e in expected if e.kind in f.DELTA_KINDS and subject_of(e) == subject]
            said = [fact for fact in deltas if isinstance(fact, f.Delta)]
            digest = (output_digest if rows[subject].role == "tool" else message_digest)(said, subject)
            assert isinstance(body.fact, f.MessageSettled | f.ToolSettled) and body.fact.digest == digest
            assert body.at <= self.clock.now_ms() - PRUNE_AFTER_MS

    def compare_rows(self, store: SqliteStore, session_id: SessionId, book: InMemorySessionState) -> None:
        assert self.run(store.session(session_id)) == book.row
        messages = self.pages(store, session_id, 3)
        shown = [row for key, row in sorted(book.messages.items()) if row.turn in book.turns]
        assert [message.row for message in messages] == shown
        assert [m.live for m in messages] == [book.turns[m.row.turn].status == "live" for m in messages]
        for run in book.runs.values():
            assert self.run(store.run(run.id)) == (session_id, run)
            assert list(self.run(store.tools(session_id, run.id))) == list(book.open_tools(run.id))

    def compare_cuts(self, session_id: SessionId, expected: list[Event], stored: list[Event]) -> None:
        whole, reading = vars(fold(session_id, expected)), fold_transcript(expected)
        assert fold_transcript(stored) == reading
        for cut in {0, len(expected), *(random.randrange(len(expected) + 1) for _ in range(4))}:
            rest = [event for event in stored if event.seq > cut]
            assert vars(fold(session_id, rest, fold(session_id, expected[:cut]))) == whole
            assert fold_transcript([*expected[:cut], *rest]) == reading

    # The rules.

    @rule(pick=PICK)
    def begin(self, pick: int) -> None:
        if len(self.journals) < 4:
            self.create(pick)

    @rule(seed=SEEDS, count=st.integers(5, 40))
    def run_random_actions(self, seed: int, count: int = 20) -> None:
        """Do many random actions in a row, chosen by a seed: drawn one by one, few would lead anywhere."""
        self.days += 1
        rng = random.Random(f"{seed} {self.days}")
        session_id = self.session(rng.randrange(12))
        for _ in range(count):
            self.clock.advance(7)
            actions = rng.choices(list(ACTION_WEIGHTS), list(ACTION_WEIGHTS.values()), k=6)
            pick, text, yes = rng.randrange(12), rng.choice(SCRAPS), rng.random() < 0.6

            self.append(pick, session_id, partial(self.first_of, actions, session_id, pick, text, yes))
        assert self.run(self.stores[0].head(session_id)) == len(self.journals[session_id])

    def first_of(
        self,
        actions: Sequence[Action],
        session_id: SessionId,
        pick: int,
        text: str,
        yes: bool,
        view: SessionStateView,
    ) -> Facts:
        """Return the facts of the first action that is possible now."""
        scene = ActionContext(session_id, view, self.ids, pick, text, yes)
        return next((facts for action in actions if (facts := action(scene))), ())

    @rule(pick=PICK, size=st.integers(1, 6), text=st.sampled_from(SCRAPS), seed=SEEDS)
    def stream(self, pick: int, size: int, text: str, seed: int) -> None:
        """Submit text without waiting: however it is merged, the journal holds all of it."""
        self.run_random_actions(seed, 20)
        session_id = self.session(pick)
        book = fold(session_id, self.journals[session_id])
        open_ = [
            row for run in book.open_runs() for row in book.streaming_messages(run.turn) if row.role != "tool"
        ]
        if not open_ or open_[0].run_id is None:
            return
        head, row = len(self.journals[session_id]), open_[0]
        delta = f.TextAppended(open_[0].run_id, f.MessageId(row.id), text)
        store = self.stores[pick % 2]

        async def hand_over() -> Sequence[Event]:
            await asyncio.gather(*(store.submit(Append(session_id, (delta,))) for _ in range(size)))
            return await store.read(session_id, head, 50)

        events = self.run(hand_over())
        facts = [event.fact for event in events]
        assert "".join(fact.text for fact in facts if isinstance(fact, f.TextAppended)) == text * size
        self.journals[session_id] += events

    @rule(pick=PICK, hours=st.integers(0, 3), seed=SEEDS)
    def sweep(self, pick: int, hours: int, seed: int) -> None:
        self.run_random_actions(seed)
        self.clock.advance(hours * PRUNE_AFTER_MS // 2)
        self.run(self.stores[pick % 2].sweep())

    @rule(pick=PICK, seed=SEEDS)
    def bookmark(self, pick: int, seed: int) -> None:
        self.run_random_actions(seed)
        session_id, store = self.session(pick), self.stores[pick % 2]
        page = self.run(store.messages(session_id, None, 200))
        book = fold(session_id, self.journals[session_id])
        reading = TranscriptFold()
        reading.add_messages(page.messages, [tool for tool in book.tools.values() if tool.state != "settled"])
        assert page.head == len(self.journals[session_id])
        self.bookmarks.append(Bookmark(session_id, page.head, reading))

    @rule(pick=PICK, seed=SEEDS)
    def read_after_bookmark(self, pick: int, seed: int) -> None:
        """Check that a page with the events after it equals the whole."""
        self.run_random_actions(seed)
        marks = [mark for mark in self.bookmarks if mark.session_id in self.journals]
        if not marks:
            return
        mark = marks[pick % len(marks)]
        for event in self.read_all(self.stores[pick % 2], mark.session_id):
            if event.seq > mark.head:
                mark.fold.add(event)
                mark.head = event.seq
        whole = fold_transcript(self.journals[mark.session_id])
        assert mark.fold.transcript().turns == whole.turns

    @rule(pick=PICK, seed=SEEDS)
    def fork(self, pick: int, seed: int) -> None:
        self.run_random_actions(seed)
        source = self.session(pick)
        if len(self.journals) > 4:
            return
        book = fold(source, self.journals[source])
        by_seq = {event.seq: event for event in self.journals[source]}
        bodies = [by_seq[row.body_seq].fact for _, row in sorted(book.messages.items()) if row.body_seq]
        kept = [body for body in bodies if isinstance(body, f.Body)]
        facts = forks.fork(book, source, len(self.journals[source]), kept, self.ids)
        copy = self.ids.session()
        assert self.append(pick, copy, lambda view: facts)
        assert fold(copy, self.journals[copy]).open_runs() == []

    @rule(pick=PICK, cut=st.booleans())
    def import_session(self, pick: int, cut: bool) -> None:
        """Import a copy of a session from another store, at once or in two pieces, perhaps pruned."""
        source, copy = self.session(pick), self.ids.session()
        if len(self.journals) > 4:
            return
        events = self.read_all(self.stores[0], source)
        store = self.stores[pick % 2]
        if cut:
            self.run(store.import_session(copy, events[: 1 + pick]))
        self.run(store.import_session(copy, events))
        assert self.run(store.import_session(copy, events)) == 0
        assert self.read_all(store, copy) == events
        self.run(store.append(Append(copy, (f.SessionDeleted(),))))

    @rule(pick=PICK, expired=st.booleans(), seed=SEEDS)
    def claim(self, pick: int, expired: bool, seed: int) -> None:
        self.run_random_actions(seed)
        runs = [
            (session_id, run)
            for session_id, journal in self.journals.items()
            for run in fold(session_id, journal).runs.values()
            if not run.is_finished or pick % 4 == 0
        ]
        if not runs:
            return
        session_id, run = runs[pick % len(runs)]
        held = self.leases.get(run.id)
        if expired:
            self.clock.advance(LEASE_MS)
        free = held is None or held[0].expires_at <= self.clock.now_ms()
        by = pick % 2
        if held is not None and held[1] != by and held[0].expires_at and free and not run.is_finished:
            # A living holder may still renew for a while.
            with pytest.raises(LeaseHeld):
                self.run(self.stores[by].claim(run.id, LEASE_MS))
            self.clock.advance(LEASE_GRACE_MS)
        try:
            lease = self.run(self.stores[by].claim(run.id, LEASE_MS))
        except RunRefused:
            assert run.is_finished
            return
        except LeaseHeld:
            assert not free
            return
        assert free and not run.is_finished
        if held is not None:
            assert lease.epoch > held[0].epoch
            self.refused(by, session_id, held[0])
        self.leases[run.id] = (lease, by)
        self.refused(by, session_id, msgspec.structs.replace(lease, epoch=lease.epoch - 1))
        say = f.TextAppended(run.id, f.MessageId("m_fenced"), "by its holder")
        assert self.append(by, session_id, lambda view: (say,), lease)

    def refused(self, by: int, session_id: SessionId, stale: Lease) -> None:
        say = f.TextAppended(stale.run_id, f.MessageId("m_fenced"), "by a stale writer")
        assert not self.append(by, session_id, lambda view: (say,), stale)
        try:
            self.run(self.stores[by].renew(stale, LEASE_MS))
        except LeaseLost:
            return
        raise AssertionError("a stale lease was renewed")

    @rule(pick=PICK)
    def release(self, pick: int) -> None:
        if self.leases:
            run_id = list(self.leases)[pick % len(self.leases)]
            lease, by = self.leases[run_id]
            self.run(self.stores[by].release(lease))
            # Known by its epoch, and free from now on.
            self.leases[run_id] = (msgspec.structs.replace(lease, expires_at=0), by)

    @rule(which=st.integers(0, 1), seed=SEEDS)
    def reopen(self, which: int, seed: int) -> None:
        self.run_random_actions(seed)
        self.run(self.stores[which].close())
        self.stores[which] = self.run(SqliteStore.open(self.folder, "normal", clock=self.clock))
        for run_id, (lease, by) in self.leases.items():
            if by == which:
                # Whoever closed is as good as dead: free, though its epoch still counts.
                self.leases[run_id] = (msgspec.structs.replace(lease, expires_at=0), by)

    @rule(pick=PICK, soon=st.booleans())
    def delete(self, pick: int, soon: bool) -> None:
        if len(self.journals) < 3:
            return
        session_id = self.session(pick)
        runs = list(fold(session_id, self.journals[session_id]).runs)
        assert self.append(pick, session_id, lambda view: turns.delete(view, session_id, view.message_events))
        del self.journals[session_id]
        if not soon:
            self.clock.advance(PURGE_AFTER_MS)
            self.run(self.stores[pick % 2].sweep())
        for asked, error in [
            (self.stores[0].session(session_id), NoSuchSession),
            (self.stores[1].read(session_id, 0, 1), NoSuchSession),
            *((self.stores[0].run(run_id), NoSuchRun) for run_id in runs[:1]),
        ]:
            try:
                self.run(asked)
            except error:
                continue
            raise AssertionError(f"{session_id} is still there")

    @rule(pick=PICK)
    def check_session(self, pick: int) -> None:
        self.compare(self.session(pick))

    @rule()
    def run_doctor(self) -> None:
        assert list(self.run(self.stores[1].check(False, lambda done, total: None))) == []
        listed = self.run(self.stores[0].sessions(None, 200)).sessions
        listed += self.run(self.stores[0].sessions(None, 200, archived=True)).sessions
        assert {row.id for row in listed} == set(self.journals)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=30,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
