"""The agent's question is asked once and answered once, however often the server is killed meanwhile.

Real servers are killed with SIGKILL before the question, right after, while it is open, after the answer.
"""

import asyncio
import random
from typing import Any

import pytest

from tests.crash.audit import CrashFigures, audit
from tests.crash.conversation_harness import CrashHarness, crash_harness
from tests.crash.scripted_model import gated_model_server
from tests.crash.writer_history import run_seed, temporary_store_folder
from tests.support.recording_clients import SessionRecorder, recording_clients
from tests.support.server_process import server_process
from tests.support.turn_script import Script, ScriptStep

ASKS = (ScriptStep(5, "ask_user"), ScriptStep(5))
YES: dict[str, Any] = {"decision": "answer", "choices": ["yes"]}
NO: dict[str, Any] = {"decision": "answer", "choices": ["no"]}
LEFT: dict[str, Any] = {"decision": "deny"}


def _url(recorder: SessionRecorder, address: str) -> str:
    question = recorder.of_kind("question_asked")[-1]
    return f"{address}/api/runs/{question.body['run_id']}/tools/{question.body['call_id']}"


async def _answer(harness: CrashHarness, body: dict[str, Any]) -> tuple[int, Any]:
    """Answer once; return 0 when the server was killed before its response."""
    return await harness.clients.request("POST", _url(harness.recorder, harness.server.address), body)


def _kinds(recorder: SessionRecorder, *kinds: str) -> list[int]:
    return [len(recorder.of_kind(kind)) for kind in kinds]


@pytest.mark.parametrize("kind", ["tool_intended", "question_asked"])
async def test_killed_around_the_asking_it_is_asked_once_and_stays_open(kind: str) -> None:
    async with crash_harness() as harness:
        harness.kill_at_event(kind)
        await harness.send("a0", *ASKS)
        await harness.wait_killed_and_start()
        await harness.wait_for_event("run_waiting")
        await harness.kill_and_start()
        assert (await _answer(harness, YES))[0] == 200
        await harness.wait_for_event("run_completed")
        assert _kinds(harness.recorder, "question_asked", "question_answered", "tool_settled") == [1, 1, 1]
        [settled] = harness.recorder.of_kind("tool_settled")
        assert settled.body["parts"] == [{"type": "text", "text": "yes"}]


@pytest.mark.parametrize("answer", [YES, LEFT], ids=["answered", "left"])
@pytest.mark.parametrize("kind", ["closing", "run_resumed"])
async def test_killed_right_after_the_answer_the_answer_stands(answer: dict[str, Any], kind: str) -> None:
    closing = "question_answered" if answer is YES else "question_closed"
    async with crash_harness() as harness:
        await harness.send("a0", *ASKS)
        await harness.wait_for_event("run_waiting")
        harness.kill_at_event(closing if kind == "closing" else kind)
        await _answer(harness, answer)
        await harness.wait_killed_and_start()
        again = await _answer(harness, NO)
        assert (again[0], again[1]["code"]) == (409, "tool_refused"), "it has been answered"
        await harness.wait_for_event("run_completed")
        assert _kinds(harness.recorder, "question_asked", closing, "tool_settled") == [1, 1, 1]


async def test_killed_at_any_moment_of_an_answer_it_counts_wholly_or_not_at_all() -> None:
    """No event triggers the kill: it happens while the answer is being sent."""
    rng = random.Random(run_seed())
    async with crash_harness() as harness:
        for number in range(3):
            await harness.send(f"a{number}", *ASKS)
            await harness.wait_for_event("run_waiting", number + 1)
            said = asyncio.create_task(_answer(harness, YES))
            await asyncio.sleep(rng.random() * 0.01)
            await harness.kill_and_start()
            await said
            status, reply = await _answer(harness, NO)
            assert status == 200 or (status, reply["code"]) == (409, "tool_refused")
            await harness.wait_for_event("run_completed", number + 1)
            chosen = [each.body["choices"] for each in harness.recorder.of_kind("question_answered")]
            assert chosen[number:] == [["no" if status == 200 else "yes"]]


async def test_of_two_browsers_at_two_servers_one_answer_counts_and_the_other_is_refused() -> None:
    seed, figures = run_seed(), CrashFigures()
    with temporary_store_folder() as folder:
        async with (
            gated_model_server() as model_server,
            server_process(folder / "store", model_server.url) as first,
            server_process(folder / "store", model_server.url) as second,
            recording_clients(random.Random(seed), lambda: "mark_done") as clients,
        ):
            recorder = await clients.create_session(first.address, second.address)
            for number in range(3):
                await clients.send(recorder, Script(f"a{number}", ASKS))
                await recorder.wait_until(recorder.has_events("run_waiting", number + 1), "a question")
                said = await asyncio.gather(
                    clients.request("POST", _url(recorder, first.address), YES),
                    clients.request("POST", _url(recorder, second.address), NO),
                )
                assert sorted(status for status, _ in said) == [200, 409], said
                await recorder.wait_until(recorder.has_events("run_completed", number + 1), "the end")
                won = ["yes", "no"][[status for status, _ in said].index(200)]
                assert recorder.of_kind("question_answered")[number].body["choices"] == [won]
            # What one asks, the other takes the answer to after its death.
            await clients.send(recorder, Script("last", ASKS))
            await recorder.wait_until(recorder.has_events("run_waiting", 4), "a question")
            await first.kill()
            figures.kills += 1
            assert (await clients.request("POST", _url(recorder, second.address), YES))[0] == 200
            await recorder.wait_until(recorder.has_events("run_completed", 4), "the end")
            await first.start()
            assert _kinds(recorder, "question_asked", "question_answered", "run_interrupted") == [4, 4, 0]
            await audit(clients, figures, second, first)
    assert figures.is_clean, f"seed {seed}: {figures}\n" + "\n".join(figures.wrong)
