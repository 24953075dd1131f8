"""Two servers over one store, servers asked to end, servers suspended past their lease and continued."""

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from holdfast.engine.runner import LEASE_MS
from tests.crash.audit import CrashFigures, audit
from tests.crash.killer import RandomKiller
from tests.crash.load_harness import LoadHarness, run_load
from tests.crash.scripted_model import gated_model_server
from tests.crash.writer_history import kill_count, run_seed, temporary_store_folder
from tests.support.recording_clients import (
    ReceivedEvent,
    RecordingClients,
    SessionRecorder,
    recording_clients,
)
from tests.support.server_process import server_process
from tests.support.turn_script import Script, ScriptStep

STOPS = 4
TAKEN_OVER_S_MAX = 30.0
"""Within seconds, on a machine that may be very busy."""


def _check_and_print(capsys: pytest.CaptureFixture[str], what: str, seed: int, figures: CrashFigures) -> None:
    assert figures.is_clean, f"seed {seed}: {figures}\n" + "\n".join(figures.wrong)
    with capsys.disabled():
        print(f"\n{what}: seed={seed} {figures}")


async def test_two_servers_of_one_store_take_over_from_each_other_when_one_is_killed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, kills = run_seed(), max(kill_count() // 4, 1)

    async def kill_one_or_the_other(harness: LoadHarness) -> None:
        killer = RandomKiller(harness.rng, harness.recorders)
        for _ in range(kills):
            server = harness.rng.choice(harness.servers)
            await killer.kill(server)
            harness.resume_timer.restart(time.monotonic())
            await server.wait_killed()
            harness.figures.kills += 1
            await server.start()
            harness.check()

    figures = await run_load(seed, 2, kill_one_or_the_other)
    _check_and_print(capsys, "two servers", seed, figures)


async def test_a_dead_servers_runs_are_taken_over_by_the_other_without_a_restart() -> None:
    rng, figures = random.Random(run_seed()), CrashFigures(kills=1)
    with temporary_store_folder() as folder:
        async with (
            gated_model_server() as model_server,
            server_process(folder / "store", model_server.url) as doomed,
            server_process(folder / "store", model_server.url) as other,
            recording_clients(rng) as clients,
        ):
            memories = [await clients.create_session(doomed.address, other.address) for _ in range(3)]
            for number, memory in enumerate(memories):
                model_server.gate(f"a{number}", 0, 10)
                await clients.send(
                    memory, Script(f"a{number}", (ScriptStep(20, "write_file"), ScriptStep(5)))
                )
                await clients.send(memory, Script(f"b{number}", (ScriptStep(20),)))
            for number, memory in enumerate(memories):
                await memory.wait_until(lambda n=number, m=memory: f"a{n}.0.9 " in _text(m), "half an answer")
            await doomed.kill()
            died_at = time.monotonic()
            model_server.open_all_gates()
            for memory in memories:
                await memory.wait_for_all_runs()
                resumed = memory.of_kind("run_resumed")[0]
                assert resumed.at - died_at < TAKEN_OVER_S_MAX
            await audit(clients, figures, other)
            assert figures.is_clean, "\n".join(figures.wrong)


def _text(recorder: SessionRecorder) -> str:
    return "".join(seen.body["text"] for seen in recorder.of_kind("text_appended"))


@pytest.mark.parametrize("answered_at", ["the same", "the other"])
async def test_an_answer_given_the_moment_it_is_asked_for_interrupts_nothing(answered_at: str) -> None:
    """At either server; and no client of either receives an event twice or out of order."""
    with temporary_store_folder() as folder:
        async with (
            gated_model_server() as model_server,
            server_process(folder / "store", model_server.url, approvals="ask") as first,
            server_process(folder / "store", model_server.url, approvals="ask") as second,
            recording_clients(random.Random(run_seed())) as clients,
        ):
            memories = [await clients.create_session(first.address, second.address) for _ in range(5)]
            asked = first if answered_at == "the same" else second
            async with asyncio.TaskGroup() as group:
                for memory in memories:
                    memory.watchers.append(_approver(group, clients, asked.address))
                for name, memory in zip("abcde", memories, strict=True):
                    for number in range(3):
                        script = Script(
                            f"{name}{number}", (ScriptStep(2, "shell"), ScriptStep(2, "shell"), ScriptStep(2))
                        )
                        await clients.send(memory, script)
                for memory in memories:
                    await memory.wait_for_all_runs()
            assert not [seen for memory in memories for seen in memory.of_kind("run_interrupted")]
            figures = await audit(clients, CrashFigures(), first, second)
            assert figures.is_clean and figures.effects == 30, "\n".join(figures.wrong)


def _approver(
    group: asyncio.TaskGroup, clients: RecordingClients, address: str
) -> Callable[[SessionRecorder, ReceivedEvent], None]:
    def watch(recorder: SessionRecorder, seen: ReceivedEvent) -> None:
        if seen.kind == "run_waiting":
            call_id = recorder.of_kind("approval_requested")[-1].body["call_id"]
            url = f"{address}/api/runs/{seen.body['run_id']}/tools/{call_id}"
            group.create_task(clients.request("POST", url, {"decision": "approve"}))

    return watch


async def test_a_server_that_is_asked_to_end_under_load_leaves_nothing_in_doubt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = run_seed()

    async def end_again_and_again(harness: LoadHarness) -> None:
        (server,) = harness.servers
        for _ in range(STOPS):
            await _wait_for_random_event(harness)
            await server.shut_down()
            await server.start()
            harness.resume_timer.restart(server.ready_at)
            harness.check()

    figures = await run_load(seed, 1, end_again_and_again)
    assert figures.in_doubt == 0, f"seed {seed}: whatever had begun had time to end"
    _check_and_print(capsys, f"{STOPS} graceful stops", seed, figures)


async def _wait_for_random_event(harness: LoadHarness) -> None:
    kind = harness.rng.choice(("text_appended", "tool_started", "tool_intended", "turn_queued"))
    struck = asyncio.Event()
    for memory in harness.recorders:
        memory.watchers.append(lambda _, seen: struck.set() if seen.kind == kind else None)
    async with asyncio.timeout(60):
        await struck.wait()


async def test_a_server_stopped_past_its_lease_and_continued_adds_what_it_had_and_does_nothing_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, figures = run_seed(), CrashFigures()
    with temporary_store_folder() as folder:
        async with (
            gated_model_server() as model_server,
            server_process(folder / "store", model_server.url) as stopped,
            server_process(folder / "store", model_server.url) as other,
            recording_clients(random.Random(seed), lambda: "mark_done") as clients,
        ):
            writing, running = [
                await clients.create_session(stopped.address, other.address) for _ in range(2)
            ]
            gate = model_server.gate("w0", 0, 60)
            await clients.send(writing, Script("w0", (ScriptStep(200, pace_ms=5),)))
            await clients.send(writing, Script("w1", (ScriptStep(5, "shell"), ScriptStep(5))))
            await clients.send(
                running, Script("r0", (ScriptStep(5, "shell", waits_for="go"), ScriptStep(20)))
            )
            await writing.wait_until(lambda: "w0.0.50 " in _text(writing), "fifty words")
            await running.wait_until(running.has_events("tool_output_appended"), "a command at work")
            began = time.monotonic()
            await stopped.suspend()
            # The model goes on writing to the one who does not read.
            gate.is_open.set()
            writing.use_next_address()
            running.use_next_address()
            await writing.wait_for_all_runs()
            await running.wait_for_all_runs()
            assert time.monotonic() - began > LEASE_MS / 1000 - 2, (
                "as long as it held its lease it was left alone"
            )
            stopped.resume()
            await writing.wait_until(writing.has_events("recovery_finished"), "the rest of what was written")
            await running.wait_until(running.has_events("recovery_finished"), "word that there is no rest")
            await clients.send(writing, Script("w2", (ScriptStep(20, "shell"), ScriptStep(5))))
            await writing.wait_for_all_runs()
            assert (await audit(clients, figures, other, stopped)).late == 1
    _check_and_print(capsys, "stopped", seed, figures)
