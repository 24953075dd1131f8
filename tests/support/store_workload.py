"""Realistic conversations of a server, generated from a seed: turns, streams, tools, files, leases,
undoing, cancelling, abandoning, deleting, changes over two sessions, sweeps.
"""

import asyncio
import random
from collections.abc import Sequence

from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.decisions import endings, turns
from holdfast.domain.errors import HoldfastError, NoSuchTurn, StoreFault
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.events.stream_fold import OutputFold, StreamFold, settle_message, settle_tool
from holdfast.domain.ids import CallId, IdGenerator, RunId, SessionId
from holdfast.domain.state.rows import RunRow, ToolRow
from holdfast.domain.state.session_state import SessionStateView
from holdfast.domain.usage import Usage
from holdfast.store.maintenance import SweepResult
from holdfast.store.ports import Append, Fence
from tests.support.store_client import ObservedClient

_WORDS = (
    "anchor", "holdfast", "kelp", "tide", "会议", "getUserName", "log", "Ärger", "snake_case", "42", "🦀",
)  # fmt: skip


class JumpingClock:
    """The machine's time plus jumps: hours pass between sweeps."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self._clock = SystemClock()
        self._ahead_ms = ahead_ms

    def now_ms(self) -> Instant:
        return self._clock.now_ms() + self._ahead_ms

    def advance(self, ms: int) -> None:
        self._ahead_ms += ms


class Turn:
    """A turn in progress: its owner, and the place of its next message."""

    def __init__(self, session_id: SessionId, run_id: RunId, turn: int, fence: Fence, place: int = 0) -> None:
        self.session_id = session_id
        self.run_id = run_id
        self.turn = turn
        self.fence = fence
        self.place = place

    def next_place(self) -> int:
        self.place += 1
        return self.place

    def append(self, *facts: f.AnyFact) -> Append:
        return Append(self.session_id, facts, fence=self.fence)


class Workload:
    """Several concurrent conversations in one store. `pause_s` is the longest wait between two tokens."""

    def __init__(
        self, client: ObservedClient, clock: JumpingClock, rng: random.Random, pause_s: float = 0.0
    ) -> None:
        self._client = client
        self._store = client.store
        self._clock = clock
        self._rng = rng
        self._pause_s = pause_s
        self._ids = IdGenerator(clock, rng.getrandbits)

    async def run(self, conversations: int, turns_each: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(conversations):
                # Its own chance, so that what it says does not depend on who came first.
                rng = random.Random(self._rng.getrandbits(64))
                worker = Workload(self._client, self._clock, rng, self._pause_s)
                group.create_task(worker._converse(turns_each))

    async def recover(self) -> None:
        """Take over the runs of dead processes and finish them, as a server does when it starts."""
        for session_id, run in await self._store.open_runs():
            try:
                await self._take_over(session_id, run)
            except StoreFault:
                raise
            except HoldfastError:
                continue  # Held by a process that lives, or over meanwhile.

    async def sweep(self) -> SweepResult:
        self._clock.advance(self._rng.choice((0, 7_200_000)))
        return await self._store.sweep()

    async def _converse(self, count: int) -> None:
        session_id = await self._create()
        for _ in range(count):
            try:
                session_id = await self._next_action(session_id)
            except StoreFault:
                raise
            except HoldfastError:
                session_id = await self._create()  # Deleted, or taken by another process.

    async def _create(self) -> SessionId:
        session_id = self._ids.session()
        created = f.SessionCreated(title=self._words(3))
        await self._client.append(Append(session_id, (created,), expect=0))
        return session_id

    async def _next_action(self, session_id: SessionId) -> SessionId:
        match self._rng.choices(("turn", "undo", "continue", "delete", "sweep"), (75, 8, 8, 3, 6))[0]:
            case "turn":
                await self._turn(session_id)
            case "undo":
                await self._undo(session_id)
            case "continue":
                return await self._continue(session_id)
            case "delete":
                await self._client.delete(session_id, lambda view: turns.delete(view, session_id))
                return await self._create()
            case _:
                await self.sweep()
        return session_id

    async def _undo(self, session_id: SessionId) -> None:
        try:
            await self._client.append(Append(session_id, lambda view: turns.undo(view, session_id)))
        except NoSuchTurn:
            return

    async def _continue(self, session_id: SessionId) -> SessionId:
        """Make one change over two sessions, which must be stored together."""
        fresh = self._ids.session()
        created = f.SessionCreated(title=self._words(2), previous_session_id=session_id)
        accepted = f.TurnAccepted(self._ids.turn(), 1, self._ids.message(), (Text(self._words(200)),))
        await self._client.append(
            Append(session_id, (f.SessionContinued(fresh), f.SessionArchived())),
            Append(fresh, (created, accepted), expect=0),
        )
        return fresh

    async def _turn(self, session_id: SessionId) -> None:
        key = f"key-{self._rng.getrandbits(48):x}"
        parts = await self._parts()
        drafts: list[f.AnyFact] = []

        def accept(view: SessionStateView) -> Sequence[f.AnyFact]:
            drafts[:] = turns.accept_turn(view, session_id, self._ids, parts, key)
            return drafts

        await self._client.append(Append(session_id, accept))
        accepted = next(fact for fact in drafts if isinstance(fact, f.TurnAccepted))
        if self._rng.random() < 0.1:
            (again,) = await self._client.append(Append(session_id, accept))
            assert again.repeated_turn is not None, "a send with the same key was stored twice"
        if isinstance(drafts[-1], f.TurnQueued) or accepted.run_id is None:
            return
        fence = await self._client.claim(accepted.run_id)
        turn = Turn(session_id, accepted.run_id, accepted.turn, fence)
        await self._client.append(turn.append(f.RunStarted(turn.run_id)))
        await self._work(turn)

    async def _work(self, turn: Turn) -> None:
        for step in range(self._rng.randint(1, 3)):
            calls = await self._step(turn)
            for call in calls:
                await self._call(turn, call)
            if self._rng.random() < 0.06:
                return await self._abandon(turn, step)
        await self._client.append(turn.append(f.RunCompleted(turn.run_id)))
        return None

    async def _abandon(self, turn: Turn, step: int) -> None:
        """Abandon the run, so that a later process finds it, or cancel it."""
        if step % 2:
            await self._client.append(Append(turn.session_id, lambda view: _cancel(view, turn.run_id)))

    async def _step(self, turn: Turn) -> list[f.ToolIntended]:
        started = f.ModelStepStarted(turn.run_id, turn.turn, turn.next_place(), self._ids.message(), "demo")
        await self._client.append(turn.append(started))
        fold = StreamFold(self._clock.now_ms())
        calls = [self._ids.call() for _ in range(self._rng.choice((0, 0, 1, 2)))]
        for delta in self._deltas(started, calls):
            fold.add(delta, self._clock.now_ms())
            self._client.stream(turn.session_id, delta, turn.fence)
            await self._pause()
        intended = [
            f.ToolIntended(
                turn.run_id, turn.turn, turn.next_place(), started.message_id, call, "shell",
                '{"command":"ls"}', self._rng.choice(("pure", "idempotent", "unsafe")),
            )
            for call in calls
        ]  # fmt: skip
        usage = Usage(self._rng.randint(1, 999), self._rng.randint(1, 99))
        settled = f.ModelStepSettled(turn.run_id, started.message_id, "stop", usage)
        await self._client.append(turn.append(settle_message(started, fold), settled, *intended))
        return intended

    async def _call(self, turn: Turn, call: f.ToolIntended) -> None:
        await self._client.append(turn.append(f.ToolStarted(turn.run_id, call.call_id)))
        output = OutputFold(self._clock.now_ms())
        for _ in range(self._rng.randint(0, 12)):
            delta = f.ToolOutputAppended(turn.run_id, call.call_id, self._words(8) + "\n")
            output.add(delta, self._clock.now_ms())
            self._client.stream(turn.session_id, delta, turn.fence)
            await self._pause()
        row = ToolRow(call.call_id, turn.run_id, turn.turn, call.place, call.name, call.effect)
        settled = settle_tool(row, call.message_id, "done", output)
        await self._client.append(turn.append(settled))

    def _deltas(self, started: f.ModelStepStarted, calls: list[CallId]) -> list[f.Delta]:
        run_id, message_id = started.run_id, started.message_id
        thinking = [
            f.ReasoningAppended(run_id, message_id, self._words(2)) for _ in range(self._rng.randint(0, 4))
        ]
        text = [f.TextAppended(run_id, message_id, self._words(3)) for _ in range(self._rng.randint(1, 25))]
        arguments = [
            f.ToolArgumentsAppended(run_id, message_id, call, "shell", piece)
            for call in calls
            for piece in ('{"command"', ':"ls"}')
        ]
        return [*thinking, *text, *arguments]

    async def _parts(self) -> tuple[AnyPart, ...]:
        text = Text(self._words(self._rng.choice((5, 20, 300))))
        if self._rng.random() > 0.15:
            return (text,)
        content = self._rng.randbytes(self._rng.choice((1_000, 300_000)))
        digest = await self._store.put_blob(content)
        return (text, File(digest, "picture.png", "image/png", len(content)))

    async def _take_over(self, session_id: SessionId, run: RunRow) -> None:
        fence = await self._client.claim(run.id)
        turn = Turn(session_id, run.id, run.turn, fence, run.place)
        if run.status == "queued":
            await self._client.append(turn.append(f.TurnDequeued(run.turn, run.id)))
        if run.status == "running":
            notice = self._ids.message()
            interrupt = Append(session_id, lambda view: _interrupt(view, run.id, notice), fence=turn.fence)
            await self._client.append(interrupt)
        if self._rng.random() < 0.3:
            return await self._abandon(turn, 1)
        if run.status in ("running", "interrupted"):
            await self._client.append(turn.append(f.RunResumed(run.id, "policy", run.attempts + 1)))
            turn.place += 2_000_000
        else:
            await self._client.append(turn.append(f.RunStarted(run.id)))
        return await self._work(turn)

    async def _pause(self) -> None:
        await self._store.wait_for_capacity()
        await asyncio.sleep(self._rng.random() * self._pause_s)

    def _words(self, count: int) -> str:
        return " ".join(self._rng.choices(_WORDS, k=count)) + " "


def _cancel(view: SessionStateView, run_id: RunId) -> Sequence[f.AnyFact]:
    run = view.run(run_id)
    return endings.cancel(view, run) if run is not None else []


def _interrupt(view: SessionStateView, run_id: RunId, notice: "f.MessageId") -> Sequence[f.AnyFact]:
    run = view.run(run_id)
    return endings.interrupt(view, run, notice) if run is not None else []
