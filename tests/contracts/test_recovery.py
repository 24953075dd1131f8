"""R: what was produced is never reported as lost. Real processes, killed and stopped."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.agent.ports import Forgetful, TextDelta
from holdfast.domain import facts as f
from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.context import AssistantMessage
from holdfast.domain.ids import RunId, SessionId
from holdfast.domain.late import Unsaved
from holdfast.domain.limits import RECOVERY_AGE_MS_MAX, RECOVERY_READS_MAX, RESUME_ATTEMPTS_STALLED_MAX
from holdfast.domain.parts import Text
from holdfast.domain.requests import DEMO, Profile
from holdfast.engine.recovery import LOOK_AGAIN_MS
from holdfast.store.spool import Spools
from tests.house import House, Lever, calls, house, says

ROOT = Path(__file__).resolve().parents[2]


class LateClock(SystemClock):
    """A clock that can be put forward: past another process's lease, or past an age."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> Instant:
        return super().now_ms() + self.ahead_ms


class Resident:
    """The other process, as the test sees it."""

    def __init__(self, folder: Path, story: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.contracts.resident", str(folder), story]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, bufsize=1)
        first, second = self._line().split()
        self.session_id, self.run_id = SessionId(first), RunId(second)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other process ended by itself"
        return line.strip()

    def until(self, kind: str, times: int = 1) -> None:
        while times:
            times -= self._line() == kind

    def send(self, signum: signal.Signals) -> None:
        os.kill(self.process.pid, signum)

    def stop(self) -> None:
        """Stop it between two commits: whoever is stopped inside one stalls every other writer with it."""
        for _ in range(100):
            self.send(signal.SIGSTOP)
            time.sleep(0.02)
            if _is_free(self.folder / "write.lock"):
                return
            self.send(signal.SIGCONT)
            time.sleep(0.003)
        raise AssertionError("it is always inside a commit")

    def go_on(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _is_free(path: Path) -> bool:
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextmanager
def resident(folder: Path, story: str) -> Iterator[Resident]:
    other = Resident(folder, story)
    try:
        yield other
    finally:
        other.end()


async def test_a_message_is_on_disk_with_its_run_before_it_is_acknowledged(tmp_path: Path) -> None:
    """C1"""
    with resident(tmp_path, "nothing") as other:
        other.kill()  # It has acknowledged the message, and nothing else is known of it.
        async with house(tmp_path, started=False) as here:
            assert (await here.text(other.session_id))[0] == ("user", "settled", "Begin")
            session_id, run = await here.store.run(other.run_id)
            assert session_id == other.session_id and run.turn == 1
            again = await here.engine.verbs.accept(session_id, (Text("Begin"),), key="resident")
            assert again.run_id == other.run_id


async def test_an_interrupted_run_has_a_notice_and_the_session_is_usable_at_once(tmp_path: Path) -> None:
    """R1"""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
        async with house(tmp_path, resume="never") as here:
            entries = await here.text(other.session_id)
            assert [entry[:2] for entry in entries] == [
                ("user", "settled"), ("assistant", "interrupted"), ("notice", "interrupted")
            ]  # fmt: skip
            session = await here.store.session(other.session_id)
            assert (session.status, session.run_id) == ("interrupted", None)
            here.model.steps = [says("Here.")]
            sent = await here.say(other.session_id, "Are you there?")
            await here.until_run(sent.run_id, "completed")


async def test_while_output_may_still_arrive_the_notice_says_so(tmp_path: Path) -> None:
    """R2, R5"""
    clock = LateClock(60_000)
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=clock) as here:
            assert (await here.text(other.session_id))[-1][:2] == ("notice", "pending")
            for _ in range(RECOVERY_READS_MAX + 2):
                clock.ahead_ms += LOOK_AGAIN_MS
                await here.engine.recovery.sweep()
                await here.text(other.session_id)
            run = await here.run(other.run_id)
            # Stopped, not gone: looking costs nothing, and the notice never says that there was nothing.
            assert run.pending is not None and run.pending.reads == 0
            assert (await here.text(other.session_id))[-1][:2] == ("notice", "pending")


async def test_output_that_arrives_late_appears_before_the_notice_and_heals_it(tmp_path: Path) -> None:
    """R3: a process stopped past its lease and then continued."""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=LateClock(60_000)) as here:
            before = (await here.text(other.session_id))[1]
            other.go_on()

            async def is_healed() -> bool:
                return (await here.text(other.session_id))[-1][:2] == ("notice", "recovered")

            await here.until(is_healed)
            after = (await here.text(other.session_id))[1]
            assert after[:2] == ("assistant", "recovered")
            assert after[2].startswith(before[2]) and len(after[2]) > len(before[2])
            assert (await here.run(other.run_id)).pending is None


async def test_late_output_of_a_run_that_went_on_is_kept_apart_from_the_model(tmp_path: Path) -> None:
    """R3: the run was resumed meanwhile."""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, clock=LateClock(60_000)) as here:
            here.model.steps = [says("… and so on.")]
            await here.until_run(other.run_id, "completed")
            other.go_on()

            async def has_late() -> bool:
                return any(entry.late for entry in await here.entries(other.session_id))

            await here.until(has_late)
            entries = await here.entries(other.session_id)
            places = [(entry.role, entry.late) for entry in entries]
            assert places == [
                ("user", False), ("assistant", False), ("assistant", True), ("notice", False),
                ("assistant", False),
            ]  # fmt: skip
            late = next(part.text for part in entries[2].parts if isinstance(part, Text))
            here.model.steps = [says("Fine.")]
            sent = await here.say(other.session_id, "Thanks")
            await here.until_run(sent.run_id, "completed")
            assert late not in str(here.model.requests[-1])


async def test_output_in_a_spool_is_found_after_its_process_died(tmp_path: Path) -> None:
    """R3: the store stalled, then the process died."""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
        async with house(tmp_path, resume="never", started=False) as here:
            deltas = tuple(f.TextAppended(other.run_id, f.MessageId("m"), f"spooled{i} ") for i in range(3))
            page = await here.store.messages(other.session_id, None, 10)
            saved = sum(len(getattr(e.fact, "text", "")) for e in page.messages[-1].events)
            Spools(tmp_path, here.ids.process()).write(other.run_id, [Unsaved(1, 1, saved, deltas)])
            await here.engine.start()
            entries = await here.text(other.session_id)
            assert entries[1][1] == "recovered" and entries[1][2].endswith("spooled0 spooled1 spooled2 ")
            assert entries[2][:2] == ("notice", "recovered")
            assert not list((tmp_path / "spool").iterdir())


async def test_a_stalled_store_makes_a_run_spool_and_a_store_that_is_back_takes_it(tmp_path: Path) -> None:
    """R2: output is kept beside a store that stalls, and the file goes when the store is back."""
    async with house(tmp_path) as here:
        go_on = asyncio.Event()
        here.model.steps = [[TextDelta("before "), go_on, TextDelta("during "), asyncio.Event()]]
        session_id = await here.begin()
        await here.say(session_id, "Write")

        async def has_begun() -> bool:
            return (await here.text(session_id))[-1][2] == "before "

        async def is_spooled() -> bool:
            return b"during" in b"".join(path.read_bytes() for path in (tmp_path / "spool").glob("*.spool"))

        async def is_dropped() -> bool:
            return not list((tmp_path / "spool").iterdir())

        await here.until(has_begun)
        with (tmp_path / "write.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            go_on.set()
            await here.until(is_spooled)
            assert (await here.text(session_id))[-1][2] == "before "  # Nobody is shown what is not saved.
        await here.until(is_dropped)
        assert (await here.text(session_id))[-1][2] == "before during "


async def test_many_readers_at_once_make_one_recovery(tmp_path: Path) -> None:
    """R4"""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=LateClock(60_000), started=False) as here:
            await here.engine.recovery.mark()
            other.kill()
            await asyncio.gather(*(here.engine.messages(other.session_id, None, 50) for _ in range(50)))
            run = await here.run(other.run_id)
            assert run.pending is not None and run.pending.reads == 1


async def test_a_sealed_run_with_nothing_more_costs_looks_and_then_the_notice_is_final(
    tmp_path: Path,
) -> None:
    """R6"""
    clock = LateClock(60_000)
    with resident(tmp_path, "nothing") as other:
        other.until("model_step_started")
        other.stop()
        async with house(tmp_path, resume="never", clock=clock, started=False) as here:
            await here.engine.recovery.mark()
            other.kill()
            seen = []
            for _ in range(RECOVERY_READS_MAX + 1):
                clock.ahead_ms += LOOK_AGAIN_MS
                await here.engine.recovery.sweep()
                seen.append((await here.text(other.session_id))[-1][:2])
            assert seen[0] == ("notice", "pending") and seen[-1] == ("notice", "final")
            events = len(await here.events(other.session_id))
            clock.ahead_ms += LOOK_AGAIN_MS
            await here.engine.recovery.sweep()
            assert len(await here.events(other.session_id)) == events  # A final notice stops the looking.


async def test_past_the_age_limit_the_notice_is_final_without_another_look(tmp_path: Path) -> None:
    """R7; and output that arrives after that still heals it."""
    clock = LateClock(60_000)
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=clock, started=False) as here:
            await here.engine.recovery.mark()
            clock.ahead_ms += RECOVERY_AGE_MS_MAX + 1000
            await here.engine.recovery.sweep()
            assert (await here.text(other.session_id))[-1][:2] == ("notice", "final")
            other.go_on()

            async def is_healed() -> bool:
                return (await here.text(other.session_id))[-1][:2] == ("notice", "recovered")

            await here.until(is_healed)


async def test_everything_that_was_shown_before_the_crash_is_there_after_it(tmp_path: Path) -> None:
    """R8"""
    with resident(tmp_path, "words") as other:
        seen = await _watch(tmp_path, other)
        async with house(tmp_path, resume="never") as here:
            text = (await here.text(other.session_id))[1][2]
            assert len(seen) > 20 and text.startswith("".join(seen))


async def _watch(folder: Path, other: Resident) -> list[str]:
    """Read along from another process until it is killed in the middle; what was seen."""
    seen: list[str] = []
    async with house(folder, started=False) as here:
        async for event in here.store.tail(other.session_id, 0):
            fact = event.fact
            if isinstance(fact, f.TextAppended):
                seen.append(fact.text)
            if len(seen) == 25:
                other.kill()
                return seen
    return seen


async def test_an_interrupted_run_goes_on_by_itself_within_its_budget_of_attempts(tmp_path: Path) -> None:
    """R9"""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
    async with house(tmp_path) as here:
        here.model.steps = [says("Done.")]
        run = await here.until_run(other.run_id, "completed")
        assert run.attempts == 1


async def test_a_script_never_goes_on_with_what_a_model_has_begun(tmp_path: Path) -> None:
    """R10: a server may be started again without the key of the model that it had."""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
    async with house(tmp_path, started=False) as here:
        here.model.name, here.model.profile = DEMO, Profile(DEMO, 100_000)
        await here.engine.start()
        run = await here.until_run(other.run_id, "failed")
        assert here.model.requests == []
        assert run.failure is not None and "puppet began this answer" in run.failure.detail
        # What is asked anew is another matter.
        here.model.steps = [says("No AI.")]
        sent = await here.say(other.session_id, "Again")
        await here.until_run(sent.run_id, "completed")


async def test_a_run_that_never_gets_anywhere_stops_being_resumed(tmp_path: Path) -> None:
    """R9: the budget is durable."""
    for story in ("nothing", *["again"] * RESUME_ATTEMPTS_STALLED_MAX):
        with resident(tmp_path, story) as other:
            other.until("model_step_started")
            other.kill()
    async with house(tmp_path) as here:
        await here.until_run(other.run_id, "interrupted")
        await here.engine.recovery.sweep()
        run = await here.run(other.run_id)
        assert (run.status, run.stalled) == ("interrupted", RESUME_ATTEMPTS_STALLED_MAX)
        assert here.model.requests == []
        here.model.steps = [says("By hand.")]
        await here.engine.resume(other.run_id)
        await here.until_run(other.run_id, "completed")


async def test_a_server_that_is_asked_to_end_holds_nothing_against_the_run_that_it_leaves(
    tmp_path: Path,
) -> None:
    """R9: the budget is there for a run that takes its processes down."""
    with resident(tmp_path, "nothing") as other:
        other.until("model_step_started")
        other.kill()
    for _ in range(2 * RESUME_ATTEMPTS_STALLED_MAX):
        async with house(tmp_path, started=False) as here:
            here.model.steps = [[asyncio.Event()]]
            await here.engine.start()

            async def is_tried(here: House = here) -> bool:
                return bool(here.model.requests)

            await here.until(is_tried)
    async with house(tmp_path, started=False) as here:
        here.model.steps = [says("At last.")]
        await here.engine.start()
        await here.until_run(other.run_id, "completed")


async def test_a_run_that_an_orderly_stop_ends_between_two_steps_was_cut_off_like_any_other(
    tmp_path: Path,
) -> None:
    """R1: what becomes of it is for the policy to say, though nothing of it was under way."""
    lever = Lever("lever", "pure")
    lever.hold = asyncio.Event()
    async with house(tmp_path, lever, resume="never") as here:
        here.model.steps = [calls("lever")]
        session_id = await here.begin()
        sent = await here.say(session_id, "Go")
        await lever.started.wait()
        stopping = asyncio.create_task(here.engine.stop(30.0))
        await asyncio.sleep(0)
        lever.hold.set()
        await stopping
        run = await here.run(sent.run_id)
        assert (run.status, len(here.model.requests)) == ("interrupted", 1)
    async with house(tmp_path, Lever("lever", "pure"), resume="never") as here:
        await here.engine.recovery.sweep()
        assert (await here.run(sent.run_id)).status == "interrupted"
        assert here.model.requests == []


class Pensive(Forgetful):
    """A memory that is asked before anything else, and may be held up."""

    def __init__(self) -> None:
        self.hold: asyncio.Event | None = None
        self.asked = asyncio.Event()

    async def owner(self, session_id: SessionId) -> str | None:
        if self.hold is not None:
            self.asked.set()
            await self.hold.wait()
        return await super().owner(session_id)


async def test_a_run_that_a_person_answered_goes_on_though_a_stop_came_before_anything_of_it(
    tmp_path: Path,
) -> None:
    """R9: whoever was asked has decided, whatever becomes of what is cut off."""
    memory = Pensive()
    async with house(
        tmp_path, Lever("lever", "unsafe"), approvals="ask", resume="never", memory=memory
    ) as here:
        here.model.steps = [calls("lever")]
        session_id = await here.begin()
        sent = await here.say(session_id, "Go")
        run = await here.until_run(sent.run_id, "waiting")
        (tool,) = await here.store.tools(session_id, run.id)
        memory.hold = asyncio.Event()
        await here.engine.resolve(run.id, tool.id, "approve")
        await memory.asked.wait()
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask", resume="never", started=False) as here:
        here.model.steps = [says("Done.")]
        await here.engine.start()
        run = await here.until_run(sent.run_id, "completed")
        assert (lever.pulled, run.attempts) == (["{}"], 0)


async def test_whoever_is_stopped_while_claiming_a_run_leaves_nobody_holding_it(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("lever", "unsafe"), approvals="ask") as here:
        here.model.steps = [calls("lever")]
        sent = await here.say(await here.begin(), "Go")
        run = await here.until_run(sent.run_id, "waiting")
        for steps in range(6):
            claiming = asyncio.create_task(here.engine.runner.claim(run.id))
            for _ in range(steps):
                await asyncio.sleep(0)
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            lease = await here.store.claim(run.id, 1000)
            assert lease.was_free
            await here.store.release(lease)


async def test_an_unsafe_call_that_may_have_run_is_put_to_a_person(tmp_path: Path) -> None:
    """R9"""
    with resident(tmp_path, "tool") as other:
        other.until("tool_output_appended")
        other.kill()
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever) as here:
        await here.until_run(other.run_id, "waiting")
        assert (await here.store.session(other.session_id)).status == "needs_you"
        assert lever.pulled == []
        (tool,) = await here.store.tools(other.session_id, other.run_id)
        assert tool.state == "in_doubt"
        here.model.steps = [says("So be it.")]
        await here.engine.resolve(other.run_id, tool.id, "rerun")
        await here.until_run(other.run_id, "completed")
        assert lever.pulled == ["{}"]


async def test_a_pure_call_that_was_under_way_is_repeated_and_a_settled_one_is_not(tmp_path: Path) -> None:
    """R9"""
    with resident(tmp_path, "pure") as other:
        other.until("tool_output_appended")
        other.kill()
    lever = Lever("lever", "pure")
    async with house(tmp_path, lever) as here:
        here.model.steps = [[TextDelta("Half"), asyncio.Event()]]

        async def is_settled() -> bool:
            entries = await here.entries(other.session_id)
            return any(entry.role == "tool" and entry.status == "settled" for entry in entries)

        await here.until(is_settled)
        assert lever.pulled == ["{}"]
    async with house(tmp_path, lever) as here:
        here.model.steps = [says("whole.")]
        await here.until_run(other.run_id, "completed")
        assert lever.pulled == ["{}"]


async def test_the_model_that_goes_on_is_shown_the_partial_answer(tmp_path: Path) -> None:
    """R10"""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
    async with house(tmp_path) as here:
        here.model.steps = [says("… the end.")]
        await here.until_run(other.run_id, "completed")
        partial = (await here.text(other.session_id))[1][2]
        shown = here.model.requests[0].messages
        assert any(isinstance(m, AssistantMessage) and m.parts == (Text(partial),) for m in shown)
        entries = await here.entries(other.session_id)
        assert entries[-1].continues == entries[1].id
