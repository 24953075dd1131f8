"""Two servers over one store, servers asked to end, servers stopped past their lease and continued."""

import asyncio
import random
import time
from collections.abc import Callable

import pytest

from holdfast.engine.runner import LEASE_MS
from tests.crash.audit import Figures, audit
from tests.crash.killer import Reaper
from tests.crash.load_harness import Bustle, bustle
from tests.crash.scripted_model import acting
from tests.crash.writer_history import kills_wanted, scratch, seed_of_run
from tests.support.recording_clients import Crowd, Memory, Seen, gathering
from tests.support.server_process import serving
from tests.support.turn_script import Script, Step

STOPS = 4
TAKEN_OVER_S_MAX = 30.0
"""Within seconds, on a machine that may be very busy."""


def _tell(capsys: pytest.CaptureFixture[str], what: str, seed: int, figures: Figures) -> None:
    assert figures.is_clean, f"seed {seed}: {figures}\n" + "\n".join(figures.wrong)
    with capsys.disabled():
        print(f"\n{what}: seed={seed} {figures}")


async def test_two_servers_of_one_store_take_over_from_each_other_when_one_is_killed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, kills = seed_of_run(), max(kills_wanted() // 4, 1)

    async def kill_one_or_the_other(town: Bustle) -> None:
        reaper = Reaper(town.chance, town.memories)
        for _ in range(kills):
            server = town.chance.choice(town.servers)
            await reaper.strike(server)
            town.stopwatch.restart(time.monotonic())
            await server.bury()
            town.figures.kills += 1
            await server.start()
            town.check()

    figures = await bustle(seed, 2, kill_one_or_the_other)
    _tell(capsys, "two servers", seed, figures)


async def test_a_dead_servers_runs_are_taken_over_by_the_other_without_a_restart() -> None:
    chance, figures = random.Random(seed_of_run()), Figures(kills=1)
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url) as doomed,
            serving(folder / "store", actor.url) as other,
            gathering(chance) as crowd,
        ):
            memories = [await crowd.begin(doomed.address, other.address) for _ in range(3)]
            for number, memory in enumerate(memories):
                actor.gate(f"a{number}", 0, 10)
                await crowd.say(memory, Script(f"a{number}", (Step(20, "write_file"), Step(5))))
                await crowd.say(memory, Script(f"b{number}", (Step(20),)))
            for number, memory in enumerate(memories):
                await memory.until(lambda n=number, m=memory: f"a{n}.0.9 " in _text(m), "half an answer")
            await doomed.kill()
            died_at = time.monotonic()
            actor.open_all()
            for memory in memories:
                await memory.until_all_ended()
                resumed = memory.of_kind("run_resumed")[0]
                assert resumed.at - died_at < TAKEN_OVER_S_MAX
            await audit(crowd, figures, other)
            assert figures.is_clean, "\n".join(figures.wrong)


def _text(memory: Memory) -> str:
    return "".join(seen.body["text"] for seen in memory.of_kind("text_appended"))


@pytest.mark.parametrize("door", ["the same", "the other"])
async def test_an_answer_given_the_moment_it_is_asked_for_interrupts_nothing(door: str) -> None:
    """At either server; and no client of either is ever sent an event twice or out of order."""
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url, approvals="ask") as first,
            serving(folder / "store", actor.url, approvals="ask") as second,
            gathering(random.Random(seed_of_run())) as crowd,
        ):
            memories = [await crowd.begin(first.address, second.address) for _ in range(5)]
            asked = first if door == "the same" else second
            async with asyncio.TaskGroup() as group:
                for memory in memories:
                    memory.watchers.append(_approver(group, crowd, asked.address))
                for name, memory in zip("abcde", memories, strict=True):
                    for number in range(3):
                        script = Script(f"{name}{number}", (Step(2, "shell"), Step(2, "shell"), Step(2)))
                        await crowd.say(memory, script)
                for memory in memories:
                    await memory.until_all_ended()
            assert not [seen for memory in memories for seen in memory.of_kind("run_interrupted")]
            figures = await audit(crowd, Figures(), first, second)
            assert figures.is_clean and figures.effects == 30, "\n".join(figures.wrong)


def _approver(group: asyncio.TaskGroup, crowd: Crowd, address: str) -> Callable[[Memory, Seen], None]:
    def watch(memory: Memory, seen: Seen) -> None:
        if seen.kind == "run_waiting":
            call_id = memory.of_kind("approval_requested")[-1].body["call_id"]
            url = f"{address}/api/runs/{seen.body['run_id']}/tools/{call_id}"
            group.create_task(crowd.ask("POST", url, {"decision": "approve"}))

    return watch


async def test_a_server_that_is_asked_to_end_under_load_leaves_nothing_in_doubt(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = seed_of_run()

    async def end_again_and_again(town: Bustle) -> None:
        (server,) = town.servers
        for _ in range(STOPS):
            await _until_something_happens(town)
            await server.end()
            await server.start()
            town.stopwatch.restart(server.ready_at)
            town.check()

    figures = await bustle(seed, 1, end_again_and_again)
    assert figures.in_doubt == 0, f"seed {seed}: whatever had begun had time to end"
    _tell(capsys, f"{STOPS} graceful stops", seed, figures)


async def _until_something_happens(town: Bustle) -> None:
    kind = town.chance.choice(("text_appended", "tool_started", "tool_intended", "turn_queued"))
    struck = asyncio.Event()
    for memory in town.memories:
        memory.watchers.append(lambda _, seen: struck.set() if seen.kind == kind else None)
    async with asyncio.timeout(60):
        await struck.wait()


async def test_a_server_stopped_past_its_lease_and_continued_adds_what_it_had_and_does_nothing_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, figures = seed_of_run(), Figures()
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url) as stopped,
            serving(folder / "store", actor.url) as other,
            gathering(random.Random(seed), lambda: "mark_done") as crowd,
        ):
            writing, running = [await crowd.begin(stopped.address, other.address) for _ in range(2)]
            gate = actor.gate("w0", 0, 60)
            await crowd.say(writing, Script("w0", (Step(200, pace_ms=5),)))
            await crowd.say(writing, Script("w1", (Step(5, "shell"), Step(5))))
            await crowd.say(running, Script("r0", (Step(5, "shell", waits_for="go"), Step(20))))
            await writing.until(lambda: "w0.0.50 " in _text(writing), "fifty words")
            await running.until(running.has("tool_output_appended"), "a command at work")
            began = time.monotonic()
            await stopped.stop()
            # The model goes on writing to the one who does not read.
            gate.opened.set()
            writing.turn_away()
            running.turn_away()
            await writing.until_all_ended()
            await running.until_all_ended()
            assert time.monotonic() - began > LEASE_MS / 1000 - 2, (
                "as long as it held its lease it was left alone"
            )
            stopped.go_on()
            await writing.until(writing.has("recovery_finished"), "the rest of what was written")
            await running.until(running.has("recovery_finished"), "word that there is no rest")
            await crowd.say(writing, Script("w2", (Step(20, "shell"), Step(5))))
            await writing.until_all_ended()
            assert (await audit(crowd, figures, other, stopped)).late == 1
    _tell(capsys, "stopped", seed, figures)
