"""Whatever happens to a conversation in any process, its cached context equals the store.

Two stores share a folder: the first has the cache, the second is another process. A state machine lets people
and runs act through both, moves runs between them as after a crash, and reads the context as a run does,
sometimes while it changes. A conversation that only this process changed is reused; one whose context another
changed is loaded again; either way it equals a fresh load from the store.
"""

import asyncio
import itertools
import random
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace

from holdfast.agent.agent import find_unfinished
from holdfast.agent.context_cache import ContextCache, ContextHandle
from holdfast.domain.clock import FakeClock
from holdfast.domain.context.context import ModelProfile, build_request
from holdfast.domain.decisions import endings, turns
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events import facts as f
from holdfast.domain.ids import IdGenerator, ProcessId, RunId
from holdfast.domain.state.changes import LoadedContext
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.domain.transcript.transcript import Transcript, TranscriptFold, Turn
from holdfast.engine.instructions import InstructionStore
from holdfast.engine.recorder import RunRecorder
from holdfast.store.ports import Append, AppendReceipt, Lease
from holdfast.store.sqlite.store import SqliteStore
from tests.simulation import session_actions as actions
from tests.simulation.session_actions import Action, ActionContext

OURS, THEIRS = 0, 1
SEEDS = st.integers(0, 2**32 - 1)
SCRAPS = ("words ", "会议 ", "é", "\n", "x" * 300, " ")
CHARS = 1_000_000
PROFILES = (ModelProfile("demo", 1_000_000), ModelProfile("demo", 300, answer_tokens=100))
ENDINGS = (f.RunInterrupted, f.RunCancelled, f.RunFailed)


def answer(scene: ActionContext) -> Facts:
    """Resume a run, as a person's answer does."""
    return actions.continue_run(scene) if scene.run("running") is None else ()


def cancel(scene: ActionContext) -> Facts:
    run = scene.run("running", "waiting")
    return endings.cancel(scene.view, run, "user", scene.view.message_events) if run is not None else ()


WORK: dict[Action, int] = {
    actions.start: 12, actions.step: 8, actions.stream_text: 12, actions.stream_call: 8, actions.settle: 12,
    actions.settle_wrongly: 1, actions.use_tool: 24, actions.end: 4, actions.continue_run: 4,
    actions.recover: 2,
    actions.steer: 6,
}  # fmt: skip
PEOPLE: dict[Action, int] = {
    actions.accept: 6, actions.accept_while_busy: 4, actions.undo: 2, actions.restore: 2, actions.edit: 2,
    actions.clear: 1, actions.rename: 3, actions.append_unknown_event: 1, answer: 3, cancel: 1,
}  # fmt: skip


class ChangingContext:
    """A cached conversation that changes while it is read."""

    def __init__(
        self,
        context: ContextHandle,
        before: Callable[[], Awaitable[None]],
        after: Callable[[], Awaitable[None]],
    ) -> None:
        self._context = context
        self._before, self._after = before, after

    @property
    def is_changed_elsewhere(self) -> bool:
        return self._context.is_changed_elsewhere

    async def fold(self, chars: int, read: Callable[[], Awaitable[LoadedContext]]) -> TranscriptFold:
        async def slowly() -> LoadedContext:
            await self._before()
            back = await read()
            await self._after()
            return back

        return await self._context.fold(chars, slowly)

    def release(self) -> None:
        self._context.release()


class ContextCacheMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-cached-"))
        self.runner = asyncio.Runner()
        self.clock = FakeClock()
        numbers = itertools.count(1)
        self.ids = IdGenerator(self.clock, lambda bits: next(numbers))
        self.cache = ContextCache(self.clock, idle_ms=3_600_000)
        self.stores: list[SqliteStore] = []
        self.days = 0
        self.session_id = self.ids.session()
        self.worker = OURS
        self.last_run: str | None = None
        self.is_cached = self.other_changed_context = self.other_wrote = self.in_doubt = self.is_unsure = (
            False
        )

    @initialize()
    def open(self) -> None:
        for _ in range(2):
            self.stores.append(self.runner.run(SqliteStore.open(self.folder, "normal", clock=self.clock)))
        self.stores[OURS].add_change_listener(self.cache.on_change)
        self.append(OURS, lambda view: turns.create_session(view, f.SessionCreated("new")))

    def teardown(self) -> None:
        try:
            for store in self.stores:
                self.runner.run(store.close())
            self.runner.run(self.cache.close())
        finally:
            self.runner.close()
            shutil.rmtree(self.folder)

    # What the rules stand on.

    def append(self, by: int, decide: Callable[[SessionStateView], Facts]) -> bool:
        return self.runner.run(self.commit(by, decide))

    async def commit(self, by: int, decide: Callable[[SessionStateView], Facts]) -> bool:
        """Commit the result of `decide` through one of the stores; record what the cache may do."""
        decided: list[Facts] = []

        def remembered(view: SessionStateView) -> Facts:
            decided.append(decide(view))
            return decided[-1]

        try:
            (receipt,) = await self.stores[by].append(Append(self.session_id, remembered))
        except HoldfastError:
            return False
        self.record_change(by, receipt, decided[-1])
        return bool(decided[-1])

    def record_change(self, by: int, receipt: AppendReceipt, facts: Facts) -> None:
        for fact in facts:
            if isinstance(fact, f.TurnAccepted) and fact.run_id is not None:
                self.last_run = fact.run_id
        if by == THEIRS and facts:
            self.other_changed_context = (
                self.other_changed_context or receipt.context_before != receipt.context_after
            )
            self.other_wrote = True
        elif self.other_wrote and any(isinstance(fact, ENDINGS) for fact in facts):
            self.in_doubt = True
        if any(isinstance(fact, f.TurnsRestored) for fact in facts):
            self.in_doubt = True
        if by == OURS and facts:
            # One that was read while it went on hears from our next change where it stands, unless others
            # have written before that: then it is read again.
            self.in_doubt = self.in_doubt or (self.is_unsure and self.other_wrote)
            self.is_unsure = False

    def choose_action(
        self, rng: random.Random, weights: dict[Action, int]
    ) -> Callable[[SessionStateView], Facts]:
        picked = rng.choices(list(weights), list(weights.values()), k=6)
        pick, text, yes = rng.randrange(12), rng.choice(SCRAPS), rng.random() < 0.6

        def decide(view: SessionStateView) -> Facts:
            scene = ActionContext(self.session_id, view, self.ids, pick, text, yes)
            return next((facts for action in picked if (facts := action(scene))), ())

        return decide

    # The rules.

    @rule(seed=SEEDS, count=st.integers(1, 25), alone=st.booleans())
    def run_random_actions(self, seed: int, count: int, alone: bool) -> None:
        """Do many random actions in a row; `alone`: only through the first store."""
        self.days += 1
        rng = random.Random(f"{seed} {self.days}")
        for _ in range(count):
            self.clock.advance(7)
            if rng.random() < 0.7:
                if alone and self.worker == THEIRS:
                    self.move_run(OURS, rng)
                self.append(self.worker, self.choose_action(rng, WORK))
            else:
                self.append(OURS if alone else rng.randrange(2), self.choose_action(rng, PEOPLE))

    @rule(seed=SEEDS)
    def take_over_run(self, seed: int) -> None:
        self.move_run(1 - self.worker, random.Random(seed))

    def move_run(self, to: int, rng: random.Random) -> None:
        """Let another process claim the active run, and interrupt it unless it has not begun."""
        written = rng.random() < 0.6

        def mark(view: SessionStateView) -> Facts:
            run = next((run for run in view.open_runs() if run.status == "running"), None)
            if run is None:
                return ()
            writing = any(row.role == "assistant" for row in view.streaming_messages(run.turn))
            if not writing and all(tool.state != "started" for tool in view.open_tools(run.id)):
                return ()
            return endings.interrupt(view, run, self.ids.message(), view.message_events if written else None)

        self.append(to, mark)
        self.worker = to

    @rule(seed=SEEDS, count=st.integers(1, 5))
    def continue_run_elsewhere(self, seed: int, count: int) -> None:
        """Let the other process continue a run between two steps; it may not get far."""
        rng = random.Random(seed)
        for action in (actions.settle, actions.accept, actions.start, answer):
            self.append(OURS, self.choose_action(rng, {action: 1}))
        self.use_context(seed, busy=False)
        self.move_run(THEIRS, rng)
        for _ in range(count):
            self.append(THEIRS, self.choose_action(rng, {answer: 1, actions.step: 2, actions.stream_text: 4}))
        self.use_context(seed, busy=False)

    @rule(title=st.sampled_from(SCRAPS))
    def rename_elsewhere(self, title: str) -> None:
        self.append(THEIRS, lambda view: turns.rename(view, self.session_id, title, "user"))
        self.other_wrote = True

    @rule()
    def evict(self) -> None:
        self.clock.advance(3_700_000)
        self.runner.run(self.cache.evict_idle())
        assert self.cache.entry_count == 0 and self.cache.size_bytes == 0
        self.is_cached = False

    @rule(seed=SEEDS, busy=st.booleans())
    def use_context(self, seed: int, busy: bool) -> None:
        """Use the context as a run of this process does: commit something, then read it."""
        if self.last_run is None:
            return
        if self.worker == THEIRS:
            self.move_run(OURS, random.Random(seed))
        self.runner.run(self.read_context(random.Random(seed), busy))

    async def read_context(self, rng: random.Random, busy: bool) -> None:
        context, run_id = self.cache.acquire(self.session_id), self.last_run
        await self.commit(OURS, lambda view: ())
        hits, rebuilds = self.cache.hits, sum(self.cache.rebuilds.values())
        was_moved, may_be_read = self.other_changed_context, self.in_doubt
        mixed = [self.other_wrote]

        async def meanwhile() -> None:
            if busy and rng.random() < 0.5:
                by = THEIRS if rng.random() < 0.2 else OURS
                await self.commit(by, self.choose_action(rng, PEOPLE if by == THEIRS else {**PEOPLE, **WORK}))

        async def after() -> None:
            # What they did so far has been read; of what they do from here on it cannot be said how it is
            # found out, only that it is.
            self.other_changed_context = self.other_wrote = self.in_doubt = False
            mixed.append(False)
            await meanwhile()
            self.in_doubt = self.other_wrote

        found = await self.transcript(ChangingContext(context, meanwhile, after), run_id)
        was_read = sum(self.cache.rebuilds.values()) == rebuilds + 1
        assert was_read or self.cache.hits == hits + 1
        assert was_read or (self.is_cached and not was_moved), "what another process did was noticed"
        assert not was_read or not self.is_cached or was_moved or may_be_read, f"{self.cache.rebuilds}"
        self.is_cached, self.is_unsure = True, context._entry._baseline.version is None
        if not self.other_changed_context:
            await self.compare(found, run_id, mixed[-1] or self.other_wrote)
        context.release()

    async def compare(self, found: Transcript, run_id: str | None, touched: bool) -> None:
        fresh = await self.transcript(ContextCache(self.clock).acquire(self.session_id), run_id)
        if not touched:
            assert found == fresh
        if not touched or await self.is_between_steps():
            for profile in PROFILES:
                assert build_request(found, "Be brief.", profile) == build_request(
                    fresh, "Be brief.", profile
                )
            assert find_unfinished(found) == find_unfinished(fresh)

    async def is_between_steps(self) -> bool:
        """Return whether a model could be called now: no message is streaming, and every call is answered."""
        quiet: list[bool] = []

        def look(view: SessionStateView) -> Facts:
            run_turns = {run.turn: run.id for run in view.open_runs()}
            open_ = [*(row for turn in run_turns for row in view.streaming_messages(turn))]
            calls = [tool for run_id in run_turns.values() for tool in view.open_tools(run_id)]
            quiet[:] = [not open_ and not calls]
            return ()

        await self.stores[THEIRS].append(Append(self.session_id, look))
        return quiet[0]

    async def transcript(self, context: "ContextHandle | ChangingContext", run_id: str | None) -> Transcript:
        assert run_id is not None
        lease = Lease(RunId(run_id), 1, ProcessId("p"), 0)
        recorder = RunRecorder(
            self.stores[OURS], context, self.session_id, lease, self.folder,
            InstructionStore(self.stores[OURS], self.clock),
        )  # fmt: skip
        found = await recorder.transcript(CHARS)
        # What a run was given, and summaries, are not among what is read back yet; nor is which calls of
        # other runs were begun: no request tells it.
        return replace(found, turns=tuple(turn_of_run(run_id, turn) for turn in found.turns), compactions=())


def turn_of_run(run_id: str, turn: Turn) -> Turn:
    entries = (
        entry
        if entry.state is None or entry.outcome is not None or entry.run_id == run_id
        else replace(entry, state="intended")
        for entry in turn.entries
    )
    return replace(turn, entries=tuple(entries))


TestCached = ContextCacheMachine.TestCase
TestCached.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
