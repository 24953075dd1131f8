"""The real server is killed at every point at which a turn can be cut off.

A point is reached by what clients are sent, by a model or a command that waits for the test, and by taking
turns with the server at the store's own write lock. Nothing inside the server knows of it.
"""

import asyncio
from collections.abc import Callable

import pytest

from tests.crash.conversation_harness import Stage, stage
from tests.support.server_process import MISSED, TRIES_MAX, Turnstile, turnstile
from tests.support.turn_script import EDITED, Step

SHELL = (Step(5, "shell"), Step(5))


async def test_killed_right_after_the_acknowledgement_the_turn_is_answered() -> None:
    async with stage() as play:
        await play.say("a0", Step(20))
        await play.kill_and_start()


async def test_killed_before_the_acknowledgement_arrived_a_repeated_send_is_one_turn() -> None:
    async with stage() as play:
        play.strike_at("turn_accepted")
        sending = asyncio.create_task(play.say("a0", Step(20)))
        await play.buried_and_started()
        sent = await sending
        await play.crowd.try_to_say(play.memory, sent, {"text": sent.script.text, "key": sent.key})
        assert len(play.memory.of_kind("turn_accepted")) == 1


async def test_killed_right_after_a_run_has_started_it_is_answered() -> None:
    async with stage() as play:
        play.strike_at("run_started")
        await play.say("a0", Step(20))
        await play.buried_and_started()


async def test_killed_in_the_middle_of_text_it_goes_on_after_the_last_word() -> None:
    async with stage() as play:
        gate = play.actor.gate("a0", 0, 10)
        await play.say("a0", Step(20))
        await play.heard("a0.0.9 ")
        gate.opened.set()
        play.actor.gate("a0", 0, 15)
        await play.heard("a0.0.14 ")
        await play.server.kill()
        play.actor.open_all()
        await play.start_again()
        await play.saw("run_completed")
        assert play.actor.cues[-1].said == 15, "the model is shown what it had said"


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_killed_after_the_last_word_and_before_it_is_settled_nothing_is_said_twice(times: int) -> None:
    """Nor does it fail when the model, asked to go on again and again, has nothing to add."""
    async with stage() as play:
        play.actor.gate("a0", 0, 20)
        await play.say("a0", Step(20))
        await play.heard("a0.0.19 ")
        for number in range(1, times):
            await play.kill_and_start()
            await play.saw("model_step_started", number + 1)
        await play.server.kill()
        play.actor.open_all()
        await play.start_again()


async def test_killed_between_intending_a_call_and_starting_it_the_call_runs_without_a_question() -> None:
    for _ in range(TRIES_MAX):
        async with stage() as play:
            gate = play.actor.gate("a0", 0, 5)
            await play.say("a0", *SHELL)
            await play.heard("a0.0.4 ")
            with turnstile(play.server.folder) as writers:
                gate.opened.set()
                await writers.let_pass_until(play.memory.has("tool_intended"))
                await play.server.kill()
            await play.start_again()
            await play.saw("run_completed")
            if play.was_too_late("tool_started"):
                continue
            assert play.effects() == ["a0.0"] and "tool_in_doubt" not in play.kinds()
            return
    pytest.fail(MISSED)


@pytest.mark.parametrize("decision", ["skip", "mark_done", "rerun"])
async def test_killed_while_a_command_runs_a_person_is_asked_and_has_the_last_word(decision: str) -> None:
    async with stage(decision) as play:
        await play.say("a0", Step(5, "shell", waits_for="go"), Step(5))
        await play.heard("a0.0 begins")
        await play.server.kill()
        (play.workspace / "go").touch()
        await play.start_again()
        await play.saw("run_completed")
        assert play.effects() == ["a0.0"] * (2 if decision == "rerun" else 1)
        assert play.kinds().count("tool_in_doubt") == 1


async def test_what_a_command_printed_before_the_kill_is_still_there_when_it_was_run_again() -> None:
    async with stage("rerun") as play:
        await play.say("a0", Step(5, "shell", waits_for="go"), Step(5))
        await play.heard("a0.0 begins")
        await play.server.kill()
        (play.workspace / "go").touch()
        await play.start_again()
        await play.saw("run_completed")
        (settled,) = play.memory.of_kind("tool_settled")
        shown = "".join(part["text"] for part in settled.body["parts"])
    assert shown.count("a0.0 begins") == 2


async def test_killed_after_a_command_ended_and_before_that_is_known_a_person_is_asked() -> None:
    async with stage("mark_done") as play:
        await play.say("a0", Step(5, "shell", waits_for="go"), Step(5))
        await play.heard("a0.0 begins")
        (lock,) = (play.server.folder / "calls").iterdir()
        with turnstile(play.server.folder):
            (play.workspace / "go").touch()
            async with asyncio.timeout(30):
                while lock.exists():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await play.server.kill()
        await play.start_again()
        await play.saw("run_completed")
        assert play.effects() == ["a0.0"] and play.kinds().count("tool_in_doubt") == 1


async def test_killed_during_a_call_that_may_be_repeated_it_is_repeated_without_a_question() -> None:
    async with stage() as play:
        gate = play.actor.gate("a0", 0, 5)
        await play.say("a0", Step(5, "write_file"), Step(5))
        await play.heard("a0.0.4 ")
        with turnstile(play.server.folder) as writers:
            gate.opened.set()
            await writers.let_pass_until(play.memory.has("tool_started"))
            await play.server.kill()
        await play.start_again()
        await play.saw("run_completed")
        assert "tool_in_doubt" not in play.kinds()
        assert (play.workspace / "a0.0.txt").read_text() == "written by a0.0\n"


async def test_killed_between_an_edit_and_its_result_the_edit_is_there_once_and_told() -> None:
    for _ in range(TRIES_MAX):
        async with stage() as play:
            gate = play.actor.gate("a0", 0, 5)
            await play.say("a0", Step(5, "edit_file"), Step(5))
            await play.heard("a0.0.4 ")
            path = play.workspace / EDITED
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("start\n")
            with turnstile(play.server.folder) as writers:
                gate.opened.set()
                await _let_pass_until_changed(writers, lambda path=path: path.read_text() == "start\n")  # type: ignore[misc]
                await play.server.kill()
            await play.start_again()
            await play.saw("run_completed")
            assert path.read_text() == "start a0.0\n"
            if play.was_too_late("tool_settled"):
                continue
            assert "tool_in_doubt" not in play.kinds() and play.kinds().count("tool_resolved") == 1
            (settled,) = play.memory.of_kind("tool_settled")
            (change,) = [part for part in settled.body["parts"] if part["type"] == "change"]
            assert (settled.body["outcome"], change["path"], change["added"]) == ("done", EDITED, 1)
            return
    pytest.fail(MISSED)


async def _let_pass_until_changed(writers: Turnstile, is_as_before: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while is_as_before():
            # Who waits while the file is unchanged does not wait to say that it was changed.
            if writers.is_awaited() and is_as_before():
                writers.let_one_pass()
            await asyncio.sleep(0.005)


async def test_killed_while_a_question_is_open_it_is_still_open_and_can_be_answered() -> None:
    async with stage("mark_done") as play:
        play.crowd.be_silent()
        await play.say("a0", Step(5, "shell", waits_for="go"), Step(5))
        await play.heard("a0.0 begins")
        await play.kill_and_start()
        await play.saw("run_waiting")
        await play.kill_and_start()
        play.crowd.speak()
        await play.saw("run_completed")
        assert play.kinds().count("run_interrupted") == 1, "a run that waits is not interrupted"
        assert play.effects() == ["a0.0"]


@pytest.mark.parametrize("kind", ["tool_resolved", "run_resumed"])
async def test_killed_right_after_an_answer_the_answer_stands(kind: str) -> None:
    async with stage("skip") as play:
        play.crowd.be_silent()
        await play.say("a0", Step(5, "shell", waits_for="go"), Step(5))
        await play.heard("a0.0 begins")
        await play.kill_and_start()
        await play.saw("run_waiting")
        play.strike_at(kind)
        play.crowd.speak()
        await play.buried_and_started()
        await play.saw("run_completed")
        assert play.kinds().count("tool_resolved") == 1 and play.effects() == ["a0.0"]


@pytest.mark.parametrize("kind", ["run_completed", "turn_dequeued", "turn_queued"])
async def test_killed_while_a_queue_drains_every_turn_is_answered_in_order(kind: str) -> None:
    async with stage() as play:
        gate = play.actor.gate("a0", 0, 5)
        await play.say("a0", Step(10))
        await play.heard("a0.0.4 ")
        if kind == "turn_queued":
            play.strike_at(kind)
        sending = asyncio.create_task(_say_two(play))
        if kind != "turn_queued":
            await sending
            with turnstile(play.server.folder) as writers:
                gate.opened.set()
                await writers.let_pass_until(play.memory.has(kind))
                await play.server.kill()
            await play.start_again()
        else:
            await play.buried_and_started()
            await sending
            gate.opened.set()
        await play.memory.until_all_ended()
        ended = [seen.body["run_id"] for seen in play.memory.of_kind("run_completed")]
        assert ended == [play.memory.run_of(sent) for sent in play.memory.sent]


async def _say_two(play: Stage) -> None:
    await play.say("a1", *SHELL)
    await play.say("a2", Step(10))


@pytest.mark.parametrize("kind", ["run_interrupted", "run_resumed"])
async def test_killed_again_while_it_recovers_it_recovers_from_that_too(kind: str) -> None:
    async with stage() as play:
        gate = play.actor.gate("a0", 0, 10)
        await play.say("a0", Step(20))
        await play.heard("a0.0.9 ")
        await play.server.kill()
        play.strike_at(kind)
        await play.start_again()
        await play.buried_and_started()
        gate.opened.set()


async def test_killed_while_it_starts_it_starts_the_next_time() -> None:
    async with stage() as play:
        gate = play.actor.gate("a0", 0, 10)
        await play.say("a0", Step(20))
        await play.heard("a0.0.9 ")
        await play.server.kill()
        for share in (0.6, 0.9):
            await play.server.start_and_kill(share)
        gate.opened.set()
        await play.start_again()


async def test_killed_during_the_grace_of_a_graceful_stop_it_goes_on_at_the_next_start() -> None:
    async with stage() as play:
        play.actor.gate("a0", 0, 10)
        await play.say("a0", Step(20))
        await play.heard("a0.0.9 ")
        play.server.ask_to_end()
        path = f"{play.server.address}/api/sessions/{play.memory.session_id}"
        async with asyncio.timeout(30):
            while (await play.crowd.ask("GET", path))[0] != 503:
                continue
        await play.server.kill()
        play.actor.open_all()
        await play.start_again()
