"""R: no output is ever reported as lost. Real processes are killed and suspended."""

import asyncio
import fcntl
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock, Instant, SystemClock
from holdfast.domain.decisions.late_output import UnsavedDeltas
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import ProcessId, RunId
from holdfast.domain.limits import LEASE_GRACE_MS, RECOVERY_AGE_MS_MAX, RECOVERY_READS_MAX
from holdfast.domain.state.changes import CommittedChange
from holdfast.engine.recovery import RECOVERY_READ_INTERVAL_MS
from holdfast.models.ports import TextDelta
from holdfast.store.spool import Spools
from tests.contracts.run_worker import WorkerProcess, worker_process
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step


class LateClock(SystemClock):
    """A clock that a test can advance: past another process's lease, or past an age."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> Instant:
        return super().now_ms() + self.ahead_ms

    def advance(self, ms: int) -> None:
        self.ahead_ms += ms


def frozen_clock() -> FakeClock:
    """Return a clock that is past another process's lease, and moves only when the test moves it."""
    return FakeClock(SystemClock().now_ms() + 60_000)


async def interrupt_stopped_run(app: AppHarness, clock: LateClock | FakeClock, other: WorkerProcess) -> None:
    """Have the run of a suspended process interrupted, as its lease and its renewal have expired."""
    await app.engine.recovery.mark_interrupted()
    clock.advance(LEASE_GRACE_MS)
    await app.engine.recovery.mark_interrupted()

    async def is_marked() -> bool:
        return (await app.run(other.run_id)).status != "running"

    # A sweep in the background may be the one that marks it.
    await app.wait_until(is_marked)


async def test_a_message_is_on_disk_with_its_run_before_it_is_acknowledged(tmp_path: Path) -> None:
    """C1"""
    with worker_process(tmp_path, "nothing") as other:
        other.kill()  # It has acknowledged the message, and nothing else is known of it.
        async with running_app(tmp_path, started=False) as app:
            assert (await app.entry_texts(other.session_id))[0] == ("user", "settled", "Begin")
            session_id, run = await app.store.run(other.run_id)
            assert session_id == other.session_id and run.turn == 1
            again = await app.engine.commands.accept(session_id, (Text("Begin"),), key="resident")
            assert again.run_id == other.run_id


async def test_an_interrupted_run_has_a_notice_and_the_session_is_usable_at_once(tmp_path: Path) -> None:
    """R1"""
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.kill()
        async with running_app(tmp_path, resume="never") as app:
            entries = await app.entry_texts(other.session_id)
            assert [entry[:2] for entry in entries] == [
                ("user", "settled"), ("assistant", "interrupted"), ("notice", "interrupted")
            ]  # fmt: skip
            session = await app.store.session(other.session_id)
            assert (session.status, session.run_id) == ("interrupted", None)
            app.model.steps = [text_step("Here.")]
            sent = await app.send(other.session_id, "Are you there?")
            await app.wait_for_run(sent.run_id, "completed")


async def test_while_output_may_still_arrive_the_notice_says_so(tmp_path: Path) -> None:
    """R2, R5"""
    clock = LateClock(60_000)
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.suspend()
        async with running_app(tmp_path, resume="never", clock=clock) as app:
            await interrupt_stopped_run(app, clock, other)
            assert (await app.entry_texts(other.session_id))[-1][:2] == ("notice", "pending")
            for _ in range(RECOVERY_READS_MAX + 2):
                clock.ahead_ms += RECOVERY_READ_INTERVAL_MS
                await app.engine.recovery.sweep()
                await app.entry_texts(other.session_id)
            run = await app.run(other.run_id)
            # Stopped, not gone: looking costs nothing, and the notice never says that there was nothing.
            assert run.pending is not None and run.pending.reads == 0
            assert (await app.entry_texts(other.session_id))[-1][:2] == ("notice", "pending")


async def test_late_output_appears_before_the_notice_and_completes_it(tmp_path: Path) -> None:
    """R3: of a process that was suspended past its lease and then continued."""
    clock = LateClock(60_000)
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.suspend()
        async with running_app(tmp_path, resume="never", clock=clock) as app:
            await interrupt_stopped_run(app, clock, other)
            before = (await app.entry_texts(other.session_id))[1]
            other.resume()

            async def is_healed() -> bool:
                return (await app.entry_texts(other.session_id))[-1][:2] == ("notice", "recovered")

            await app.wait_until(is_healed)
            after = (await app.entry_texts(other.session_id))[1]
            assert after[:2] == ("assistant", "recovered")
            assert after[2].startswith(before[2]) and len(after[2]) > len(before[2])
            assert (await app.run(other.run_id)).pending is None


async def test_late_output_of_a_run_that_went_on_is_kept_apart_from_the_model(tmp_path: Path) -> None:
    """R3: the run was resumed meanwhile."""
    clock = LateClock(60_000)
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.suspend()
        async with running_app(tmp_path, clock=clock) as app:
            await interrupt_stopped_run(app, clock, other)
            app.model.steps = [text_step("… and so on.")]
            await app.wait_for_run(other.run_id, "completed")
            other.resume()

            async def has_late() -> bool:
                return any(entry.late for entry in await app.entries(other.session_id))

            await app.wait_until(has_late)
            entries = await app.entries(other.session_id)
            places = [(entry.role, entry.late) for entry in entries]
            assert places == [
                ("user", False), ("assistant", False), ("assistant", True), ("notice", False),
                ("assistant", False),
            ]  # fmt: skip
            late = next(part.text for part in entries[2].parts if isinstance(part, Text))
            app.model.steps = [text_step("Fine.")]
            sent = await app.send(other.session_id, "Thanks")
            await app.wait_for_run(sent.run_id, "completed")
            assert late not in str(app.model.requests[-1])


async def test_output_in_a_spool_is_found_after_its_process_died(tmp_path: Path) -> None:
    """R3: the store stalled, then the process died."""
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.kill()
        async with running_app(tmp_path, resume="never", started=False) as app:
            deltas = tuple(f.TextAppended(other.run_id, f.MessageId("m"), f"spooled{i} ") for i in range(3))
            page = await app.store.messages(other.session_id, None, 10)
            saved = sum(len(getattr(e.fact, "text", "")) for e in page.messages[-1].events)
            Spools(tmp_path, app.ids.process()).write(other.run_id, [UnsavedDeltas(1, 1, saved, deltas)])
            await app.engine.start()
            entries = await app.entry_texts(other.session_id)
            assert entries[1][1] == "recovered" and entries[1][2].endswith("spooled0 spooled1 spooled2 ")
            assert entries[2][:2] == ("notice", "recovered")
            assert not list((tmp_path / "spool").iterdir())


async def test_late_output_of_a_call_that_is_in_doubt_is_there_when_a_person_is_asked(tmp_path: Path) -> None:
    """R3: of a running call: the store stalled, then the process died."""
    with worker_process(tmp_path, "tool") as other:
        other.wait_for_event("tool_output_appended")
        other.kill()
    async with running_app(tmp_path, FakeTool("lever", "unsafe"), started=False) as app:
        (tool,) = await app.store.tools(other.session_id, other.run_id)
        text = (await app.entry_texts(other.session_id))[-1][2]
        deltas = tuple(f.ToolOutputAppended(other.run_id, tool.id, f"spooled{i} ") for i in range(3))
        late = UnsavedDeltas(tool.turn, tool.place, len(text), deltas)
        Spools(tmp_path, app.ids.process()).write(other.run_id, [late])
        await app.engine.start()
        await app.wait_for_run(other.run_id, "waiting")
        _, _, call, notice = await app.entry_texts(other.session_id)
        assert text == "pulled " and call[2] == "pulled spooled0 spooled1 spooled2 "
        assert notice[:2] == ("notice", "recovered")
        assert not list((tmp_path / "spool").iterdir())
        # The model that goes on reads the same.
        app.model.steps = [text_step("So be it.")]
        await app.engine.resolve(other.run_id, tool.id, "mark_done", "It did run.")
        await app.wait_for_run(other.run_id, "completed")
        assert "spooled2" in str(app.model.requests[-1])


async def test_a_stalled_store_makes_a_run_spool_and_a_store_that_is_back_takes_it(tmp_path: Path) -> None:
    """R2: the spool file holds the output of a stalled store, and is deleted when the store is back."""
    async with running_app(tmp_path) as app:
        go_on = asyncio.Event()
        app.model.steps = [[TextDelta("before "), go_on, TextDelta("during "), asyncio.Event()]]
        session_id = await app.create_session()
        await app.send(session_id, "Write")

        async def has_begun() -> bool:
            return (await app.entry_texts(session_id))[-1][2] == "before "

        async def is_spooled() -> bool:
            return b"during" in b"".join(path.read_bytes() for path in (tmp_path / "spool").glob("*.spool"))

        async def is_dropped() -> bool:
            return not list((tmp_path / "spool").iterdir())

        await app.wait_until(has_begun)
        with (tmp_path / "write.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            go_on.set()
            await app.wait_until(is_spooled)
            assert (await app.entry_texts(session_id))[-1][
                2
            ] == "before "  # Nobody is shown what is not saved.
        await app.wait_until(is_dropped)
        assert (await app.entry_texts(session_id))[-1][2] == "before during "


async def test_many_readers_at_once_make_one_recovery(tmp_path: Path) -> None:
    """R4: while that one waits for a stalled store, the others return what there is."""
    clock = frozen_clock()
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.suspend()
        async with running_app(tmp_path, resume="never", clock=clock, started=False) as app:
            await interrupt_stopped_run(app, clock, other)
            other.kill()
            with (tmp_path / "write.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                readers = [asyncio.create_task(app.entry_texts(other.session_id)) for _ in range(50)]

                async def are_answered() -> bool:
                    return sum(reader.done() for reader in readers) == len(readers) - 1

                await app.wait_until(are_answered, "what all but one are told")
                last_events = [reader.result()[-1][:2] for reader in readers if reader.done()]
                assert set(last_events) == {("notice", "pending")}
            await asyncio.gather(*readers)
            run = await app.run(other.run_id)
            assert run.pending is not None and run.pending.reads == 1


async def test_a_sealed_run_without_output_is_checked_a_few_times_and_then_final(
    tmp_path: Path,
) -> None:
    """R6"""
    clock = LateClock(60_000)
    with worker_process(tmp_path, "nothing") as other:
        other.wait_for_event("model_step_started")
        other.suspend()
        async with running_app(tmp_path, resume="never", clock=clock, started=False) as app:
            await interrupt_stopped_run(app, clock, other)
            other.kill()
            seen = []
            for _ in range(RECOVERY_READS_MAX + 1):
                clock.ahead_ms += RECOVERY_READ_INTERVAL_MS
                await app.engine.recovery.sweep()
                seen.append((await app.entry_texts(other.session_id))[-1][:2])
            assert seen[0] == ("notice", "pending") and seen[-1] == ("notice", "final")
            events = len(await app.event_kinds(other.session_id))
            clock.ahead_ms += RECOVERY_READ_INTERVAL_MS
            await app.engine.recovery.sweep()
            assert len(await app.event_kinds(other.session_id)) == events  # A final notice stops the looking.


async def test_a_restart_does_not_reset_the_checks_of_a_sealed_run(tmp_path: Path) -> None:
    """R6: the run keeps the number of checks."""
    clock = frozen_clock()
    with worker_process(tmp_path, "nothing") as other:
        other.wait_for_event("model_step_started")
        other.suspend()
        async with running_app(tmp_path, resume="never", clock=clock, started=False) as app:
            await interrupt_stopped_run(app, clock, other)
            other.kill()
    for looks in range(1, RECOVERY_READS_MAX + 1):
        async with running_app(tmp_path, resume="never", clock=clock, started=False) as app:
            await app.engine.recovery.sweep()
            run = await app.run(other.run_id)
            notice = (await app.entry_texts(other.session_id))[-1][:2]
            if looks < RECOVERY_READS_MAX:
                assert run.pending is not None and run.pending.reads == looks
                assert notice == ("notice", "pending")
    assert run.pending is None and notice == ("notice", "final")


@pytest.mark.parametrize("by", ["a reader", "the sweep"])
async def test_past_the_age_limit_the_notice_is_final_without_another_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """R7: the process is dead, and its unsaved output may be in a file."""
    clock, happened = frozen_clock(), list[str]()
    look = Spools.list_files

    def counted(spools: Spools) -> list[tuple[RunId, ProcessId, Path]]:
        happened.append("look")
        return look(spools)

    def note(change: CommittedChange) -> None:
        happened.extend("final" for event in change.events if event.kind == "recovery_finished")

    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.suspend()
        async with running_app(tmp_path, resume="never", clock=clock, started=False) as app:
            await interrupt_stopped_run(app, clock, other)
            other.kill()
            monkeypatch.setattr(Spools, "list_files", counted)
            app.store.add_change_listener(note)
            clock.advance(RECOVERY_AGE_MS_MAX + 1)
            if by == "the sweep":
                await app.engine.recovery.sweep()
                assert happened.pop() == "look", "what other runs left is looked for after that"
            assert (await app.entry_texts(other.session_id))[-1][:2] == ("notice", "final")
            assert happened == ["final"] and (await app.run(other.run_id)).pending is None


async def test_output_after_the_age_limit_still_completes_the_notice(tmp_path: Path) -> None:
    """R7"""
    clock = frozen_clock()
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.suspend()
        async with running_app(tmp_path, resume="never", clock=clock, started=False) as app:
            await interrupt_stopped_run(app, clock, other)
            clock.advance(RECOVERY_AGE_MS_MAX + 1)
            await app.engine.recovery.sweep()
            assert (await app.entry_texts(other.session_id))[-1][:2] == ("notice", "final")
            other.resume()

            async def is_healed() -> bool:
                return (await app.entry_texts(other.session_id))[-1][:2] == ("notice", "recovered")

            await app.wait_until(is_healed)


async def test_everything_that_was_shown_before_the_crash_is_there_after_it(tmp_path: Path) -> None:
    """R8"""
    with worker_process(tmp_path, "words") as other:
        seen = await _watch(tmp_path, other)
        async with running_app(tmp_path, resume="never") as app:
            text = (await app.entry_texts(other.session_id))[1][2]
            assert len(seen) > 20 and text.startswith("".join(seen))


async def _watch(folder: Path, other: WorkerProcess) -> list[str]:
    """Read along from another process until it is killed; return what it received."""
    seen: list[str] = []
    async with running_app(folder, started=False) as app:
        async for event in app.store.tail(other.session_id, 0):
            fact = event.fact
            if isinstance(fact, f.TextAppended):
                seen.append(fact.text)
            if len(seen) == 25:
                other.kill()
                return seen
    return seen
