"""R: what was produced is never reported as lost. Real processes, killed and stopped."""

import asyncio
import fcntl
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock, Instant, SystemClock
from holdfast.domain.decisions.late_output import Unsaved
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import ProcessId, RunId
from holdfast.domain.limits import LEASE_GRACE_MS, RECOVERY_AGE_MS_MAX, RECOVERY_READS_MAX
from holdfast.domain.state.changes import Change
from holdfast.engine.recovery import LOOK_AGAIN_MS
from holdfast.models.ports import TextDelta
from holdfast.store.spool import Spools
from tests.contracts.run_worker import Resident, resident
from tests.support.in_process_app import House, Lever, house, says


class LateClock(SystemClock):
    """A clock that can be put forward: past another process's lease, or past an age."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> Instant:
        return super().now_ms() + self.ahead_ms

    def advance(self, ms: int) -> None:
        self.ahead_ms += ms


def still() -> FakeClock:
    """Return a clock that is past another process's lease, and moves only when the test moves it."""
    return FakeClock(SystemClock().now_ms() + 60_000)


async def overtake(here: House, clock: LateClock | FakeClock, other: Resident) -> None:
    """Have the run of a stopped process marked: its lease has run out, and its time to renew it too."""
    await here.engine.recovery.mark()
    clock.advance(LEASE_GRACE_MS)
    await here.engine.recovery.mark()

    async def is_marked() -> bool:
        return (await here.run(other.run_id)).status != "running"

    # A sweep in the background may be the one that marks it.
    await here.until(is_marked)


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
            await overtake(here, clock, other)
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
    clock = LateClock(60_000)
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=clock) as here:
            await overtake(here, clock, other)
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
    clock = LateClock(60_000)
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, clock=clock) as here:
            await overtake(here, clock, other)
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


async def test_late_output_of_a_call_that_is_in_doubt_is_there_when_a_person_is_asked(tmp_path: Path) -> None:
    """R3: of a call under way, the store stalled, then the process died."""
    with resident(tmp_path, "tool") as other:
        other.until("tool_output_appended")
        other.kill()
    async with house(tmp_path, Lever("lever", "unsafe"), started=False) as here:
        (tool,) = await here.store.tools(other.session_id, other.run_id)
        text = (await here.text(other.session_id))[-1][2]
        deltas = tuple(f.ToolOutputAppended(other.run_id, tool.id, f"spooled{i} ") for i in range(3))
        late = Unsaved(tool.turn, tool.place, len(text), deltas)
        Spools(tmp_path, here.ids.process()).write(other.run_id, [late])
        await here.engine.start()
        await here.until_run(other.run_id, "waiting")
        _, _, call, notice = await here.text(other.session_id)
        assert text == "pulled " and call[2] == "pulled spooled0 spooled1 spooled2 "
        assert notice[:2] == ("notice", "recovered")
        assert not list((tmp_path / "spool").iterdir())
        # The model that goes on reads the same.
        here.model.steps = [says("So be it.")]
        await here.engine.resolve(other.run_id, tool.id, "mark_done", "It did run.")
        await here.until_run(other.run_id, "completed")
        assert "spooled2" in str(here.model.requests[-1])


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
    """R4: while that one waits for a store that stalls, the others have what there is."""
    clock = still()
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=clock, started=False) as here:
            await overtake(here, clock, other)
            other.kill()
            with (tmp_path / "write.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                readers = [asyncio.create_task(here.text(other.session_id)) for _ in range(50)]

                async def are_answered() -> bool:
                    return sum(reader.done() for reader in readers) == len(readers) - 1

                await here.until(are_answered, "what all but one are told")
                told = [reader.result()[-1][:2] for reader in readers if reader.done()]
                assert set(told) == {("notice", "pending")}
            await asyncio.gather(*readers)
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
            await overtake(here, clock, other)
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


async def test_a_restart_gives_a_sealed_run_no_new_looks(tmp_path: Path) -> None:
    """R6: how often it was looked is kept with the run."""
    clock = still()
    with resident(tmp_path, "nothing") as other:
        other.until("model_step_started")
        other.stop()
        async with house(tmp_path, resume="never", clock=clock, started=False) as here:
            await overtake(here, clock, other)
            other.kill()
    for looks in range(1, RECOVERY_READS_MAX + 1):
        async with house(tmp_path, resume="never", clock=clock, started=False) as here:
            await here.engine.recovery.sweep()
            run = await here.run(other.run_id)
            notice = (await here.text(other.session_id))[-1][:2]
            if looks < RECOVERY_READS_MAX:
                assert run.pending is not None and run.pending.reads == looks
                assert notice == ("notice", "pending")
    assert run.pending is None and notice == ("notice", "final")


@pytest.mark.parametrize("by", ["a reader", "the sweep"])
async def test_past_the_age_limit_the_notice_is_final_without_another_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """R7: the process is dead, and what it could not save may lie in a file."""
    clock, happened = still(), list[str]()
    look = Spools.left

    def counted(spools: Spools) -> list[tuple[RunId, ProcessId, Path]]:
        happened.append("look")
        return look(spools)

    def note(change: Change) -> None:
        happened.extend("final" for event in change.events if event.kind == "recovery_finished")

    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=clock, started=False) as here:
            await overtake(here, clock, other)
            other.kill()
            monkeypatch.setattr(Spools, "left", counted)
            here.store.note_changes(note)
            clock.advance(RECOVERY_AGE_MS_MAX + 1)
            if by == "the sweep":
                await here.engine.recovery.sweep()
                assert happened.pop() == "look", "what other runs left is looked for after that"
            assert (await here.text(other.session_id))[-1][:2] == ("notice", "final")
            assert happened == ["final"] and (await here.run(other.run_id)).pending is None


async def test_output_that_arrives_after_the_age_limit_still_heals_the_notice(tmp_path: Path) -> None:
    """R7"""
    clock = still()
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.stop()
        async with house(tmp_path, resume="never", clock=clock, started=False) as here:
            await overtake(here, clock, other)
            clock.advance(RECOVERY_AGE_MS_MAX + 1)
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
