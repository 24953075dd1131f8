"""A person is asked once and answers once, however often the server is killed meanwhile.

Real servers, killed with SIGKILL right after the question, right after the answer, while the command runs.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.crash.audit import Figures, audit
from tests.crash.conversation_harness import Stage, stage
from tests.crash.scripted_model import acting
from tests.crash.writer_history import scratch, seed_of_run
from tests.support.recording_clients import Memory, gathering
from tests.support.server_process import serving
from tests.support.turn_script import EFFECTS, Script, Step

SHELL = (Step(5, "shell"), Step(5))
WAITING = (Step(5, "shell", waits_for="go"), Step(5))
TIMES = 3
CHANGED = {"command": f"echo changed >> {EFFECTS}; echo changed"}
ANSWERS: tuple[dict[str, Any], ...] = (
    {"decision": "approve"},
    {"decision": "deny", "reason": "No."},
    {"decision": "approve", "arguments": CHANGED},
)


def _ids(answer: dict[str, Any]) -> str:
    return "changed" if "arguments" in answer else str(answer["decision"])


def _url(memory: Memory, address: str) -> str:
    question = memory.of_kind("approval_requested")[-1]
    return f"{address}/api/runs/{question.body['run_id']}/tools/{question.body['call_id']}"


async def _answer(play: Stage, body: dict[str, Any]) -> tuple[int, Any]:
    """Answer once; 0 when the server was killed before it could say that it has heard."""
    return await play.crowd.ask("POST", _url(play.memory, play.server.address), body)


def _effects(body: dict[str, Any], asked: str) -> list[str]:
    if "arguments" in body:
        return [body["arguments"]["command"].split()[1]]
    return [asked] if body["decision"] == "approve" else []


def _kinds(memory: Memory, *kinds: str) -> list[int]:
    return [len(memory.of_kind(kind)) for kind in kinds]


@pytest.mark.parametrize("answer", ANSWERS, ids=_ids)
@pytest.mark.parametrize("kind", ["approval_requested", "run_waiting"])
async def test_killed_right_after_the_question_it_is_open_still_and_not_asked_again(
    kind: str, answer: dict[str, Any]
) -> None:
    async with stage(approvals="ask") as play:
        play.strike_at(kind)
        await play.say("a0", *SHELL)
        await play.buried_and_started()
        for _ in range(TIMES - 1):
            await play.kill_and_start()
        await play.saw("run_waiting")
        assert (await _answer(play, answer))[0] == 200
        await play.saw("run_completed")
        assert _kinds(play.memory, "approval_requested", "approval_resolved", "run_interrupted") == [1, 1, 0]
        assert play.effects() == _effects(answer, "a0.0")


@pytest.mark.parametrize("times", range(TIMES))
@pytest.mark.parametrize("answer", ANSWERS, ids=_ids)
async def test_killed_right_after_the_answer_the_answer_stands(answer: dict[str, Any], times: int) -> None:
    async with stage(approvals="ask") as play:
        await play.say("a0", *SHELL)
        await play.saw("run_waiting")
        play.strike_at("approval_resolved")
        await _answer(play, answer)
        await play.buried_and_started()
        for _ in range(times):
            await play.kill_and_start()
        if (again := await _answer(play, ANSWERS[0]))[0] != 0:
            assert (again[0], again[1]["code"]) == (409, "tool_refused"), "it has been answered"
        await play.memory.until(
            lambda: play.memory.has("run_completed")() or play.memory.has("tool_in_doubt")(), "an end"
        )
        assert _kinds(play.memory, "approval_requested", "approval_resolved") == [1, 1]
        await play.saw("run_completed")
        again_s = [e for e in play.memory.of_kind("tool_resolved") if e.body["decision"] == "rerun"]
        assert len(play.effects()) <= len(_effects(answer, "a0.0")) + len(again_s)
        assert set(play.effects()) <= set(_effects(answer, "a0.0"))


@pytest.mark.parametrize("decision", ["mark_done", "skip", "rerun"])
@pytest.mark.parametrize(
    "answer", [ANSWERS[0], {"decision": "approve", "scope": "session"}], ids=["once", "session"]
)
async def test_killed_while_an_allowed_command_runs_a_person_is_asked_what_became_of_it(
    decision: str, answer: dict[str, Any]
) -> None:
    """Not whether it may run: that was said. And not by a rule: that would be to run it twice unasked."""
    async with stage(decision, approvals="ask") as play:
        play.crowd.be_silent()
        await play.say("a0", *WAITING)
        await play.saw("run_waiting")
        status, said = await _answer(play, answer)
        if answer.get("scope"):
            assert (status, said["code"]) == (409, "rule_refused"), "it is several commands"
            assert (await _answer(play, ANSWERS[0]))[0] == 200
        await play.heard("a0.0 begins")
        await play.kill_and_start()
        await play.saw("run_waiting", 2)
        await play.kill_and_start()
        (play.workspace / "go").touch()
        play.crowd.speak()
        await play.saw("run_completed")
        assert _kinds(play.memory, "approval_requested", "approval_resolved", "tool_in_doubt") == [1, 1, 1]
        assert play.effects() == ["a0.0"] * (2 if decision == "rerun" else 1)


@pytest.mark.parametrize("times", range(TIMES))
async def test_turns_behind_a_question_survive_and_are_answered_in_order(times: int) -> None:
    async with stage(approvals="ask") as play:
        gate = play.actor.gate("a0", 0, 5)
        await play.say("a0", *SHELL)
        await play.heard("a0.0.4 ")
        await play.say("a1", Step(5))
        await play.say("a2", Step(5))
        gate.opened.set()
        await play.saw("run_waiting")
        for _ in range(times + 1):
            await play.kill_and_start()
        assert _kinds(play.memory, "turn_dequeued", "run_completed") == [0, 0]
        assert (await _answer(play, ANSWERS[0]))[0] == 200
        await play.memory.until_all_ended()
        ended = [seen.body["run_id"] for seen in play.memory.of_kind("run_completed")]
        assert ended == [play.memory.run_of(sent) for sent in play.memory.sent]
        assert play.effects() == ["a0.0"]


@pytest.mark.parametrize(
    "pair", [(0, 0), (0, 1), (1, 2), (0, 2)], ids=lambda pair: "-".join(_ids(ANSWERS[i]) for i in pair)
)
async def test_of_two_browsers_at_two_servers_one_is_heard_and_the_other_is_told(
    pair: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever one server asks, the other may be told."""
    seed, figures, wins = seed_of_run(), Figures(), [0, 0]
    expected: list[str] = []
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url, approvals="ask") as first,
            serving(folder / "store", actor.url, approvals="ask") as second,
            gathering(random.Random(seed), lambda: "mark_done") as crowd,
        ):
            memory = await crowd.begin(first.address, second.address)
            for number in range(TIMES):
                await crowd.say(memory, Script(f"a{number}", SHELL))
                await memory.until(memory.has("approval_requested", number + 1), "a question")
                await memory.until(memory.has("run_waiting", number + 1), "waiting")
                answers = [_numbered(ANSWERS[each], number) for each in pair]
                said = await asyncio.gather(
                    crowd.ask("POST", _url(memory, first.address), answers[0]),
                    crowd.ask("POST", _url(memory, second.address), answers[1]),
                )
                assert sorted(status for status, _ in said) == [200, 409], said
                winner = [status for status, _ in said].index(200)
                [refusal] = [answer for status, answer in said if status == 409]
                assert refusal["code"] == "tool_refused"
                wins[winner] += 1
                await memory.until(memory.has("run_completed", number + 1), "the end")
                assert _kinds(memory, "approval_requested", "approval_resolved") == [number + 1] * 2
                expected += _effects(answers[winner], f"a{number}.0")
                assert _there(folder, memory) == expected
            await audit(crowd, figures, first, second)
    assert figures.is_clean, f"seed {seed}: {figures}\n" + "\n".join(figures.wrong)
    with capsys.disabled():
        print(f"\ntwo browsers: seed={seed} heard {wins[0]} and {wins[1]}, refused {sum(wins)} {figures}")


def _numbered(answer: dict[str, Any], number: int) -> dict[str, Any]:
    """The same answer, with an effect that can be told from those before."""
    if "arguments" not in answer:
        return answer
    return answer | {"arguments": {"command": CHANGED["command"].replace("changed", f"changed{number}")}}


def _there(folder: Path, memory: Memory) -> list[str]:
    path = folder / "store" / "workspaces" / memory.session_id / EFFECTS
    return path.read_text().split() if path.exists() else []


async def test_an_answer_at_one_server_to_what_the_other_asked_before_it_died(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, figures = seed_of_run(), Figures()
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url, approvals="ask") as asking,
            serving(folder / "store", actor.url, approvals="ask") as other,
            gathering(random.Random(seed), lambda: "mark_done") as crowd,
        ):
            memory = await crowd.begin(asking.address, other.address)
            for number in range(TIMES):
                await crowd.say(memory, Script(f"a{number}", SHELL))
                await memory.until(memory.has("run_waiting", number + 1), "a question")
                await asking.kill()
                figures.kills += 1
                assert (await crowd.ask("POST", _url(memory, other.address), ANSWERS[0]))[0] == 200
                await memory.until(memory.has("run_completed", number + 1), "the end")
                await asking.start()
            assert _kinds(memory, "approval_requested", "approval_resolved", "run_interrupted") == [
                TIMES,
                TIMES,
                0,
            ]
            await audit(crowd, figures, other, asking)
    assert figures.is_clean and figures.effects == TIMES, f"seed {seed}: {figures}\n" + "\n".join(
        figures.wrong
    )
    with capsys.disabled():
        print(f"\nasked by one, answered at the other: seed={seed} {figures}")


async def test_a_rule_made_at_one_server_holds_at_the_other_and_after_a_kill() -> None:
    """What was allowed always is listed until it is revoked, and asked about again then."""
    async with stage(approvals="ask") as play:
        address = play.server.address
        rule = {"tool": "write_file", "pattern": "*"}
        assert (await play.crowd.ask("POST", f"{address}/api/rules", rule))[0] == 201
        await play.server.kill()
        await play.start_again()
        await play.say("a0", Step(5, "write_file"), Step(5))
        await play.saw("run_completed")
        [resolved] = play.memory.of_kind("approval_resolved")
        assert (resolved.body["by"], resolved.body["rule"]) == ("policy", "*")
        assert not play.memory.of_kind("approval_requested")
        _, listed = await play.crowd.ask("GET", f"{address}/api/rules")
        [kept] = listed["rules"]
        await play.crowd.ask("DELETE", f"{address}/api/rules/{kept['id']}")
        await play.say("a1", Step(5, "write_file"), Step(5))
        await play.saw("run_waiting")
        assert (await _answer(play, ANSWERS[0]))[0] == 200
