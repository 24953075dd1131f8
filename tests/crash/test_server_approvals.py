"""A person is asked once and answers once, however often the server is killed meanwhile.

Real servers are killed with SIGKILL right after the question, after the answer, while the command runs.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.crash.audit import CrashFigures, audit
from tests.crash.conversation_harness import CrashHarness, crash_harness
from tests.crash.scripted_model import gated_model_server
from tests.crash.writer_history import run_seed, temporary_store_folder
from tests.support.recording_clients import SessionRecorder, recording_clients
from tests.support.server_process import server_process
from tests.support.turn_script import EFFECTS, Script, ScriptStep

SHELL = (ScriptStep(5, "shell"), ScriptStep(5))
WAITING = (ScriptStep(5, "shell", waits_for="go"), ScriptStep(5))
TIMES = 3
CHANGED = {"command": f"echo changed >> {EFFECTS}; echo changed"}
ANSWERS: tuple[dict[str, Any], ...] = (
    {"decision": "approve"},
    {"decision": "deny", "reason": "No."},
    {"decision": "approve", "arguments": CHANGED},
)


def _ids(answer: dict[str, Any]) -> str:
    return "changed" if "arguments" in answer else str(answer["decision"])


def _url(recorder: SessionRecorder, address: str) -> str:
    question = recorder.of_kind("approval_requested")[-1]
    return f"{address}/api/runs/{question.body['run_id']}/tools/{question.body['call_id']}"


async def _answer(harness: CrashHarness, body: dict[str, Any]) -> tuple[int, Any]:
    """Answer once; return 0 when the server was killed before its response."""
    return await harness.clients.request("POST", _url(harness.recorder, harness.server.address), body)


def _effects(body: dict[str, Any], asked: str) -> list[str]:
    if "arguments" in body:
        return [body["arguments"]["command"].split()[1]]
    return [asked] if body["decision"] == "approve" else []


def _kinds(recorder: SessionRecorder, *kinds: str) -> list[int]:
    return [len(recorder.of_kind(kind)) for kind in kinds]


@pytest.mark.parametrize("answer", ANSWERS, ids=_ids)
@pytest.mark.parametrize("kind", ["approval_requested", "run_waiting"])
async def test_killed_right_after_the_question_it_is_open_still_and_not_asked_again(
    kind: str, answer: dict[str, Any]
) -> None:
    async with crash_harness(approvals="ask") as harness:
        harness.kill_at_event(kind)
        await harness.send("a0", *SHELL)
        await harness.wait_killed_and_start()
        for _ in range(TIMES - 1):
            await harness.kill_and_start()
        await harness.wait_for_event("run_waiting")
        assert (await _answer(harness, answer))[0] == 200
        await harness.wait_for_event("run_completed")
        assert _kinds(harness.recorder, "approval_requested", "approval_resolved", "run_interrupted") == [
            1,
            1,
            0,
        ]
        assert harness.effects() == _effects(answer, "a0.0")


@pytest.mark.parametrize("times", range(TIMES))
@pytest.mark.parametrize("answer", ANSWERS, ids=_ids)
async def test_killed_right_after_the_answer_the_answer_stands(answer: dict[str, Any], times: int) -> None:
    async with crash_harness(approvals="ask") as harness:
        await harness.send("a0", *SHELL)
        await harness.wait_for_event("run_waiting")
        harness.kill_at_event("approval_resolved")
        await _answer(harness, answer)
        await harness.wait_killed_and_start()
        for _ in range(times):
            await harness.kill_and_start()
        if (again := await _answer(harness, ANSWERS[0]))[0] != 0:
            assert (again[0], again[1]["code"]) == (409, "tool_refused"), "it has been answered"
        await harness.recorder.wait_until(
            lambda: (
                harness.recorder.has_events("run_completed")()
                or harness.recorder.has_events("tool_in_doubt")()
            ),
            "an end",
        )
        assert _kinds(harness.recorder, "approval_requested", "approval_resolved") == [1, 1]
        await harness.wait_for_event("run_completed")
        again_s = [e for e in harness.recorder.of_kind("tool_resolved") if e.body["decision"] == "rerun"]
        assert len(harness.effects()) <= len(_effects(answer, "a0.0")) + len(again_s)
        assert set(harness.effects()) <= set(_effects(answer, "a0.0"))


@pytest.mark.parametrize("decision", ["mark_done", "skip", "rerun"])
@pytest.mark.parametrize(
    "answer", [ANSWERS[0], {"decision": "approve", "scope": "session"}], ids=["once", "session"]
)
async def test_killed_while_an_allowed_command_runs_a_person_is_asked_what_became_of_it(
    decision: str, answer: dict[str, Any]
) -> None:
    """The question is about the outcome, not permission. A rule that answered it would run the call twice."""
    async with crash_harness(decision, approvals="ask") as harness:
        harness.clients.pause_answers()
        await harness.send("a0", *WAITING)
        await harness.wait_for_event("run_waiting")
        status, said = await _answer(harness, answer)
        if answer.get("scope"):
            assert (status, said["code"]) == (409, "rule_refused"), "it is several commands"
            assert (await _answer(harness, ANSWERS[0]))[0] == 200
        await harness.wait_for_text("a0.0 begins")
        await harness.kill_and_start()
        await harness.wait_for_event("run_waiting", 2)
        await harness.kill_and_start()
        (harness.workspace / "go").touch()
        harness.clients.resume_answers()
        await harness.wait_for_event("run_completed")
        assert _kinds(harness.recorder, "approval_requested", "approval_resolved", "tool_in_doubt") == [
            1,
            1,
            1,
        ]
        assert harness.effects() == ["a0.0"] * (2 if decision == "rerun" else 1)


@pytest.mark.parametrize("times", range(TIMES))
async def test_turns_behind_a_question_survive_and_are_answered_in_order(times: int) -> None:
    async with crash_harness(approvals="ask") as harness:
        gate = harness.model_server.gate("a0", 0, 5)
        await harness.send("a0", *SHELL)
        await harness.wait_for_text("a0.0.4 ")
        await harness.send("a1", ScriptStep(5))
        await harness.send("a2", ScriptStep(5))
        gate.is_open.set()
        await harness.wait_for_event("run_waiting")
        for _ in range(times + 1):
            await harness.kill_and_start()
        assert _kinds(harness.recorder, "turn_dequeued", "run_completed") == [0, 0]
        assert (await _answer(harness, ANSWERS[0]))[0] == 200
        await harness.recorder.wait_for_all_runs()
        ended = [seen.body["run_id"] for seen in harness.recorder.of_kind("run_completed")]
        assert ended == [harness.recorder.run_of(sent) for sent in harness.recorder.sent]
        assert harness.effects() == ["a0.0"]


@pytest.mark.parametrize(
    "pair", [(0, 0), (0, 1), (1, 2), (0, 2)], ids=lambda pair: "-".join(_ids(ANSWERS[i]) for i in pair)
)
async def test_of_two_browsers_at_two_servers_one_answer_counts_and_the_other_is_refused(
    pair: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """The second browser may use another server than the first."""
    seed, figures, wins = run_seed(), CrashFigures(), [0, 0]
    expected: list[str] = []
    with temporary_store_folder() as folder:
        async with (
            gated_model_server() as model_server,
            server_process(folder / "store", model_server.url, approvals="ask") as first,
            server_process(folder / "store", model_server.url, approvals="ask") as second,
            recording_clients(random.Random(seed), lambda: "mark_done") as clients,
        ):
            recorder = await clients.create_session(first.address, second.address)
            for number in range(TIMES):
                await clients.send(recorder, Script(f"a{number}", SHELL))
                await recorder.wait_until(recorder.has_events("approval_requested", number + 1), "a question")
                await recorder.wait_until(recorder.has_events("run_waiting", number + 1), "waiting")
                answers = [_numbered(ANSWERS[each], number) for each in pair]
                said = await asyncio.gather(
                    clients.request("POST", _url(recorder, first.address), answers[0]),
                    clients.request("POST", _url(recorder, second.address), answers[1]),
                )
                assert sorted(status for status, _ in said) == [200, 409], said
                winner = [status for status, _ in said].index(200)
                [refusal] = [answer for status, answer in said if status == 409]
                assert refusal["code"] == "tool_refused"
                wins[winner] += 1
                await recorder.wait_until(recorder.has_events("run_completed", number + 1), "the end")
                assert _kinds(recorder, "approval_requested", "approval_resolved") == [number + 1] * 2
                expected += _effects(answers[winner], f"a{number}.0")
                assert _there(folder, recorder) == expected
            await audit(clients, figures, first, second)
    assert figures.is_clean, f"seed {seed}: {figures}\n" + "\n".join(figures.wrong)
    with capsys.disabled():
        print(f"\ntwo browsers: seed={seed} heard {wins[0]} and {wins[1]}, refused {sum(wins)} {figures}")


def _numbered(answer: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the same script with an effect that differs from earlier ones."""
    if "arguments" not in answer:
        return answer
    return answer | {"arguments": {"command": CHANGED["command"].replace("changed", f"changed{number}")}}


def _there(folder: Path, recorder: SessionRecorder) -> list[str]:
    path = folder / "store" / "workspaces" / recorder.session_id / EFFECTS
    return path.read_text().split() if path.exists() else []


async def test_an_answer_at_one_server_to_what_the_other_asked_before_it_died(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, figures = run_seed(), CrashFigures()
    with temporary_store_folder() as folder:
        async with (
            gated_model_server() as model_server,
            server_process(folder / "store", model_server.url, approvals="ask") as asking,
            server_process(folder / "store", model_server.url, approvals="ask") as other,
            recording_clients(random.Random(seed), lambda: "mark_done") as clients,
        ):
            recorder = await clients.create_session(asking.address, other.address)
            for number in range(TIMES):
                await clients.send(recorder, Script(f"a{number}", SHELL))
                await recorder.wait_until(recorder.has_events("run_waiting", number + 1), "a question")
                await asking.kill()
                figures.kills += 1
                assert (await clients.request("POST", _url(recorder, other.address), ANSWERS[0]))[0] == 200
                await recorder.wait_until(recorder.has_events("run_completed", number + 1), "the end")
                await asking.start()
            assert _kinds(recorder, "approval_requested", "approval_resolved", "run_interrupted") == [
                TIMES,
                TIMES,
                0,
            ]
            await audit(clients, figures, other, asking)
    assert figures.is_clean and figures.effects == TIMES, f"seed {seed}: {figures}\n" + "\n".join(
        figures.wrong
    )
    with capsys.disabled():
        print(f"\nasked by one, answered at the other: seed={seed} {figures}")


async def test_a_rule_made_at_one_server_holds_at_the_other_and_after_a_kill() -> None:
    """The rule is listed until it is revoked; then the server asks again."""
    async with crash_harness(approvals="ask") as harness:
        address = harness.server.address
        rule = {"tool": "write_file", "pattern": "*"}
        assert (await harness.clients.request("POST", f"{address}/api/rules", rule))[0] == 201
        await harness.server.kill()
        await harness.restart()
        await harness.send("a0", ScriptStep(5, "write_file"), ScriptStep(5))
        await harness.wait_for_event("run_completed")
        [resolved] = harness.recorder.of_kind("approval_resolved")
        assert (resolved.body["by"], resolved.body["rule"]) == ("policy", "*")
        assert not harness.recorder.of_kind("approval_requested")
        _, listed = await harness.clients.request("GET", f"{address}/api/rules")
        [kept] = listed["rules"]
        await harness.clients.request("DELETE", f"{address}/api/rules/{kept['id']}")
        await harness.send("a1", ScriptStep(5, "write_file"), ScriptStep(5))
        await harness.wait_for_event("run_waiting")
        assert (await _answer(harness, ANSWERS[0]))[0] == 200
