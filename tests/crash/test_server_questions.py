"""The agent's question is asked once and answered once, however often the server is killed meanwhile.

Real servers, killed with SIGKILL before it is asked, right after, while it is open, right after the answer.
"""

import asyncio
import random
from typing import Any

import pytest

from tests.crash.audit import Figures, audit
from tests.crash.conversation_harness import Stage, stage
from tests.crash.scripted_model import acting
from tests.crash.writer_history import scratch, seed_of_run
from tests.support.recording_clients import Memory, gathering
from tests.support.server_process import serving
from tests.support.turn_script import Script, Step

ASKS = (Step(5, "ask_user"), Step(5))
YES: dict[str, Any] = {"decision": "answer", "choices": ["yes"]}
NO: dict[str, Any] = {"decision": "answer", "choices": ["no"]}
LEFT: dict[str, Any] = {"decision": "deny"}


def _url(memory: Memory, address: str) -> str:
    question = memory.of_kind("question_asked")[-1]
    return f"{address}/api/runs/{question.body['run_id']}/tools/{question.body['call_id']}"


async def _answer(play: Stage, body: dict[str, Any]) -> tuple[int, Any]:
    """Answer once; 0 when the server was killed before it could say that it has heard."""
    return await play.crowd.ask("POST", _url(play.memory, play.server.address), body)


def _kinds(memory: Memory, *kinds: str) -> list[int]:
    return [len(memory.of_kind(kind)) for kind in kinds]


@pytest.mark.parametrize("kind", ["tool_intended", "question_asked"])
async def test_killed_around_the_asking_it_is_asked_once_and_stays_open(kind: str) -> None:
    async with stage() as play:
        play.strike_at(kind)
        await play.say("a0", *ASKS)
        await play.buried_and_started()
        await play.saw("run_waiting")
        await play.kill_and_start()
        assert (await _answer(play, YES))[0] == 200
        await play.saw("run_completed")
        assert _kinds(play.memory, "question_asked", "question_answered", "tool_settled") == [1, 1, 1]
        [settled] = play.memory.of_kind("tool_settled")
        assert settled.body["parts"] == [{"type": "text", "text": "yes"}]


@pytest.mark.parametrize("answer", [YES, LEFT], ids=["answered", "left"])
@pytest.mark.parametrize("kind", ["closing", "run_resumed"])
async def test_killed_right_after_the_answer_the_answer_stands(answer: dict[str, Any], kind: str) -> None:
    closing = "question_answered" if answer is YES else "question_closed"
    async with stage() as play:
        await play.say("a0", *ASKS)
        await play.saw("run_waiting")
        play.strike_at(closing if kind == "closing" else kind)
        await _answer(play, answer)
        await play.buried_and_started()
        again = await _answer(play, NO)
        assert (again[0], again[1]["code"]) == (409, "tool_refused"), "it has been answered"
        await play.saw("run_completed")
        assert _kinds(play.memory, "question_asked", closing, "tool_settled") == [1, 1, 1]


async def test_killed_at_any_moment_of_an_answer_it_counts_wholly_or_not_at_all() -> None:
    """The kill is not told by an event: it falls while the answer is on its way."""
    chance = random.Random(seed_of_run())
    async with stage() as play:
        for number in range(3):
            await play.say(f"a{number}", *ASKS)
            await play.saw("run_waiting", number + 1)
            said = asyncio.create_task(_answer(play, YES))
            await asyncio.sleep(chance.random() * 0.01)
            await play.kill_and_start()
            await said
            status, told = await _answer(play, NO)
            assert status == 200 or (status, told["code"]) == (409, "tool_refused")
            await play.saw("run_completed", number + 1)
            chosen = [each.body["choices"] for each in play.memory.of_kind("question_answered")]
            assert chosen[number:] == [["no" if status == 200 else "yes"]]


async def test_of_two_browsers_at_two_servers_one_is_heard_and_the_other_is_told() -> None:
    seed, figures = seed_of_run(), Figures()
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url) as first,
            serving(folder / "store", actor.url) as second,
            gathering(random.Random(seed), lambda: "mark_done") as crowd,
        ):
            memory = await crowd.begin(first.address, second.address)
            for number in range(3):
                await crowd.say(memory, Script(f"a{number}", ASKS))
                await memory.until(memory.has("run_waiting", number + 1), "a question")
                said = await asyncio.gather(
                    crowd.ask("POST", _url(memory, first.address), YES),
                    crowd.ask("POST", _url(memory, second.address), NO),
                )
                assert sorted(status for status, _ in said) == [200, 409], said
                await memory.until(memory.has("run_completed", number + 1), "the end")
                won = ["yes", "no"][[status for status, _ in said].index(200)]
                assert memory.of_kind("question_answered")[number].body["choices"] == [won]
            # What one asks, the other takes the answer to after its death.
            await crowd.say(memory, Script("last", ASKS))
            await memory.until(memory.has("run_waiting", 4), "a question")
            await first.kill()
            figures.kills += 1
            assert (await crowd.ask("POST", _url(memory, second.address), YES))[0] == 200
            await memory.until(memory.has("run_completed", 4), "the end")
            await first.start()
            assert _kinds(memory, "question_asked", "question_answered", "run_interrupted") == [4, 4, 0]
            await audit(crowd, figures, second, first)
    assert figures.is_clean, f"seed {seed}: {figures}\n" + "\n".join(figures.wrong)
