"""Kill the real server at every point at which a turn can be interrupted.

A test reaches a point by the events of clients, by a model or a command that waits for the test, and by
holding the store's own write lock. Nothing inside the server knows of it.
"""

import asyncio
from collections.abc import Callable

import pytest

from tests.crash.conversation_harness import CrashHarness, crash_harness
from tests.support.server_process import ATTEMPTS_MAX, MISSED_COMMIT, CommitGate, commit_gate
from tests.support.turn_script import EDITED, ScriptStep

SHELL = (ScriptStep(5, "shell"), ScriptStep(5))


async def test_killed_right_after_the_acknowledgement_the_turn_is_answered() -> None:
    async with crash_harness() as harness:
        await harness.send("a0", ScriptStep(20))
        await harness.kill_and_start()


async def test_killed_before_the_acknowledgement_arrived_a_repeated_send_is_one_turn() -> None:
    async with crash_harness() as harness:
        harness.kill_at_event("turn_accepted")
        sending = asyncio.create_task(harness.send("a0", ScriptStep(20)))
        await harness.wait_killed_and_start()
        sent = await sending
        await harness.clients._try_send(harness.recorder, sent, {"text": sent.script.text, "key": sent.key})
        assert len(harness.recorder.of_kind("turn_accepted")) == 1


async def test_killed_right_after_a_run_has_started_it_is_answered() -> None:
    async with crash_harness() as harness:
        harness.kill_at_event("run_started")
        await harness.send("a0", ScriptStep(20))
        await harness.wait_killed_and_start()


async def test_killed_in_the_middle_of_text_it_goes_on_after_the_last_word() -> None:
    async with crash_harness() as harness:
        gate = harness.model_server.gate("a0", 0, 10)
        await harness.send("a0", ScriptStep(20))
        await harness.wait_for_text("a0.0.9 ")
        gate.is_open.set()
        harness.model_server.gate("a0", 0, 15)
        await harness.wait_for_text("a0.0.14 ")
        await harness.server.kill()
        harness.model_server.open_all_gates()
        await harness.restart()
        await harness.wait_for_event("run_completed")
        assert harness.model_server.cues[-1].words_sent == 15, "the model is shown what it had said"


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_killed_after_the_last_word_and_before_it_is_settled_nothing_is_said_twice(times: int) -> None:
    """Nor does it fail when the model, asked to continue again and again, has nothing to add."""
    async with crash_harness() as harness:
        harness.model_server.gate("a0", 0, 20)
        await harness.send("a0", ScriptStep(20))
        await harness.wait_for_text("a0.0.19 ")
        for number in range(1, times):
            await harness.kill_and_start()
            await harness.wait_for_event("model_step_started", number + 1)
        await harness.server.kill()
        harness.model_server.open_all_gates()
        await harness.restart()


async def test_killed_between_intending_a_call_and_starting_it_the_call_runs_without_a_question() -> None:
    for _ in range(ATTEMPTS_MAX):
        async with crash_harness() as harness:
            gate = harness.model_server.gate("a0", 0, 5)
            await harness.send("a0", *SHELL)
            await harness.wait_for_text("a0.0.4 ")
            with commit_gate(harness.server.folder) as write_gate:
                gate.is_open.set()
                await write_gate.allow_commits_until(harness.recorder.has_events("tool_intended"))
                await harness.server.kill()
            await harness.restart()
            await harness.wait_for_event("run_completed")
            if harness.reached_before_kill("tool_started"):
                continue
            assert harness.effects() == ["a0.0"] and "tool_in_doubt" not in harness.kinds()
            return
    pytest.fail(MISSED_COMMIT)


@pytest.mark.parametrize("decision", ["skip", "mark_done", "rerun"])
async def test_killed_while_a_command_runs_a_person_is_asked_and_has_the_last_word(decision: str) -> None:
    async with crash_harness(decision) as harness:
        await harness.send("a0", ScriptStep(5, "shell", waits_for="go"), ScriptStep(5))
        await harness.wait_for_text("a0.0 begins")
        await harness.server.kill()
        (harness.workspace / "go").touch()
        await harness.restart()
        await harness.wait_for_event("run_completed")
        assert harness.effects() == ["a0.0"] * (2 if decision == "rerun" else 1)
        assert harness.kinds().count("tool_in_doubt") == 1


async def test_what_a_command_printed_before_the_kill_is_still_there_when_it_was_run_again() -> None:
    async with crash_harness("rerun") as harness:
        await harness.send("a0", ScriptStep(5, "shell", waits_for="go"), ScriptStep(5))
        await harness.wait_for_text("a0.0 begins")
        await harness.server.kill()
        (harness.workspace / "go").touch()
        await harness.restart()
        await harness.wait_for_event("run_completed")
        (settled,) = harness.recorder.of_kind("tool_settled")
        shown = "".join(part["text"] for part in settled.body["parts"])
    assert shown.count("a0.0 begins") == 2


async def test_killed_after_a_command_ended_and_before_that_is_known_a_person_is_asked() -> None:
    async with crash_harness("mark_done") as harness:
        await harness.send("a0", ScriptStep(5, "shell", waits_for="go"), ScriptStep(5))
        await harness.wait_for_text("a0.0 begins")
        (lock,) = (harness.server.folder / "calls").iterdir()
        with commit_gate(harness.server.folder):
            (harness.workspace / "go").touch()
            async with asyncio.timeout(30):
                while lock.exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await harness.server.kill()
        await harness.restart()
        await harness.wait_for_event("run_completed")
        assert harness.effects() == ["a0.0"] and harness.kinds().count("tool_in_doubt") == 1


async def test_killed_during_a_call_that_may_be_repeated_it_is_repeated_without_a_question() -> None:
    async with crash_harness() as harness:
        gate = harness.model_server.gate("a0", 0, 5)
        await harness.send("a0", ScriptStep(5, "write_file"), ScriptStep(5))
        await harness.wait_for_text("a0.0.4 ")
        with commit_gate(harness.server.folder) as write_gate:
            gate.is_open.set()
            await write_gate.allow_commits_until(harness.recorder.has_events("tool_started"))
            await harness.server.kill()
        await harness.restart()
        await harness.wait_for_event("run_completed")
        assert "tool_in_doubt" not in harness.kinds()
        assert (harness.workspace / "a0.0.txt").read_text() == "written by a0.0\n"


async def test_killed_between_an_edit_and_its_result_the_edit_is_there_once_and_reported() -> None:
    for _ in range(ATTEMPTS_MAX):
        async with crash_harness() as harness:
            gate = harness.model_server.gate("a0", 0, 5)
            await harness.send("a0", ScriptStep(5, "edit_file"), ScriptStep(5))
            await harness.wait_for_text("a0.0.4 ")
            path = harness.workspace / EDITED
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("start\n")
            with commit_gate(harness.server.folder) as write_gate:
                gate.is_open.set()
                await _allow_commits_until_changed(
                    write_gate, lambda path=path: path.read_text() == "start\n"
                )  # type: ignore[misc]
                await harness.server.kill()
            await harness.restart()
            await harness.wait_for_event("run_completed")
            assert path.read_text() == "start a0.0\n"
            if harness.reached_before_kill("tool_settled"):
                continue
            assert "tool_in_doubt" not in harness.kinds() and harness.kinds().count("tool_resolved") == 1
            (settled,) = harness.recorder.of_kind("tool_settled")
            (change,) = [part for part in settled.body["parts"] if part["type"] == "change"]
            assert (settled.body["outcome"], change["path"], change["added"]) == ("done", EDITED, 1)
            return
    pytest.fail(MISSED_COMMIT)


async def _allow_commits_until_changed(gate: CommitGate, is_as_before: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while is_as_before():
            # Who waits while the file is unchanged does not wait to say that it was changed.
            if gate.has_waiter() and is_as_before():
                gate.allow_one_commit()
            await asyncio.sleep(0.005)


async def test_killed_while_a_question_is_open_it_is_still_open_and_can_be_answered() -> None:
    async with crash_harness("mark_done") as harness:
        harness.clients.pause_answers()
        await harness.send("a0", ScriptStep(5, "shell", waits_for="go"), ScriptStep(5))
        await harness.wait_for_text("a0.0 begins")
        await harness.kill_and_start()
        await harness.wait_for_event("run_waiting")
        await harness.kill_and_start()
        harness.clients.resume_answers()
        await harness.wait_for_event("run_completed")
        assert harness.kinds().count("run_interrupted") == 1, "a run that waits is not interrupted"
        assert harness.effects() == ["a0.0"]


@pytest.mark.parametrize("kind", ["tool_resolved", "run_resumed"])
async def test_killed_right_after_an_answer_the_answer_stands(kind: str) -> None:
    async with crash_harness("skip") as harness:
        harness.clients.pause_answers()
        await harness.send("a0", ScriptStep(5, "shell", waits_for="go"), ScriptStep(5))
        await harness.wait_for_text("a0.0 begins")
        await harness.kill_and_start()
        await harness.wait_for_event("run_waiting")
        harness.kill_at_event(kind)
        harness.clients.resume_answers()
        await harness.wait_killed_and_start()
        await harness.wait_for_event("run_completed")
        assert harness.kinds().count("tool_resolved") == 1 and harness.effects() == ["a0.0"]


@pytest.mark.parametrize("kind", ["run_completed", "turn_dequeued", "turn_queued"])
async def test_killed_while_a_queue_drains_every_turn_is_answered_in_order(kind: str) -> None:
    async with crash_harness() as harness:
        gate = harness.model_server.gate("a0", 0, 5)
        await harness.send("a0", ScriptStep(10))
        await harness.wait_for_text("a0.0.4 ")
        if kind == "turn_queued":
            harness.kill_at_event(kind)
        sending = asyncio.create_task(_send_two(harness))
        if kind != "turn_queued":
            await sending
            with commit_gate(harness.server.folder) as write_gate:
                gate.is_open.set()
                await write_gate.allow_commits_until(harness.recorder.has_events(kind))
                await harness.server.kill()
            await harness.restart()
        else:
            await harness.wait_killed_and_start()
            await sending
            gate.is_open.set()
        await harness.recorder.wait_for_all_runs()
        ended = [seen.body["run_id"] for seen in harness.recorder.of_kind("run_completed")]
        assert ended == [harness.recorder.run_of(sent) for sent in harness.recorder.sent]


async def _send_two(harness: CrashHarness) -> None:
    await harness.send("a1", *SHELL)
    await harness.send("a2", ScriptStep(10))


@pytest.mark.parametrize("kind", ["run_interrupted", "run_resumed"])
async def test_killed_again_while_it_recovers_it_recovers_from_that_too(kind: str) -> None:
    async with crash_harness() as harness:
        gate = harness.model_server.gate("a0", 0, 10)
        await harness.send("a0", ScriptStep(20))
        await harness.wait_for_text("a0.0.9 ")
        await harness.server.kill()
        harness.kill_at_event(kind)
        await harness.restart()
        await harness.wait_killed_and_start()
        gate.is_open.set()


async def test_killed_while_it_starts_it_starts_the_next_time() -> None:
    async with crash_harness() as harness:
        gate = harness.model_server.gate("a0", 0, 10)
        await harness.send("a0", ScriptStep(20))
        await harness.wait_for_text("a0.0.9 ")
        await harness.server.kill()
        for share in (0.6, 0.9):
            await harness.server.start_and_kill(share)
        gate.is_open.set()
        await harness.restart()


async def test_killed_during_the_grace_of_a_graceful_stop_it_goes_on_at_the_next_start() -> None:
    async with crash_harness() as harness:
        harness.model_server.gate("a0", 0, 10)
        await harness.send("a0", ScriptStep(20))
        await harness.wait_for_text("a0.0.9 ")
        harness.server.terminate()
        path = f"{harness.server.address}/api/sessions/{harness.recorder.session_id}"
        async with asyncio.timeout(30):
            while (await harness.clients.request("GET", path))[0] != 503:
                continue
        await harness.server.kill()
        harness.model_server.open_all_gates()
        await harness.restart()
