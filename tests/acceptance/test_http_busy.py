"""A message to a conversation that is worked on, and a run at its limit: over HTTP, on real servers."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, text_of, wait_until

LIMITS = {"HOLDFAST_APPROVALS": "allow", "HOLDFAST_RUN_STEPS_MAX": "2"}


@pytest.fixture(scope="module")
def server(speaker: ScriptedModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that runs tools without asking, two steps at a time."""
    with cli_in(tmp_path_factory.mktemp("home"), **environ_for(speaker), **LIMITS) as command:
        yield command.serve("--port", "0")


async def send(api: ApiClient, session: str, text: str, if_busy: str, key: str | None = None) -> Any:
    body = {"text": text, "if_busy": if_busy} | ({"key": key} if key else {})
    return await api.post(f"/api/sessions/{session}/turns", body)


async def start_blocked_run(api: ApiClient, folder: Path) -> tuple[str, str, Path]:
    """A conversation whose run is inside a command that ends once the file is there."""
    session = await api.create_session(workspace=str(folder))
    command = "touch begun; until [ -e go ]; do sleep 0.02; done; echo pulled"
    receipt = await api.send(session, f"run {command}")
    for _ in range(3_000):
        if (folder / "begun").exists():
            return session, receipt["run_id"], folder / "go"
        await asyncio.sleep(0.02)
    raise AssertionError("the command did not begin")


async def turn_texts(api: ApiClient, session: str) -> list[tuple[int, str, str]]:
    return [(each["turn"], each["role"], text_of(each).strip()) for each in await api.entries(session)]


async def test_a_steered_message_is_answered_in_the_turn_under_way(
    server: RunningServer, speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    async with api_client(server.address) as api:
        session, run_id, go = await start_blocked_run(api, tmp_path)
        receipt = await send(api, session, "In French", "steer", "k1")
        assert api.status == 202 and set(receipt) == {"turn_id", "run_id", "seq", "session_id"}
        assert (await api.get(f"/api/runs/{receipt['run_id']}"))["status"] == "queued"
        go.touch()
        await api.wait_for_run(run_id)
        run = await api.wait_for_run(receipt["run_id"])
        assert run["steps"] == 0 and run["turn"] == 2
        read = await turn_texts(api, session)
        assert [(turn, role) for turn, role, _ in read] == [
            (1, "user"), (1, "assistant"), (1, "tool"), (1, "user"), (1, "assistant"),
        ]  # fmt: skip
        assert [words for _, _, words in read[3:]] == ["In French", "In French"]
        asked = [body["messages"] for body in speaker.requests if body.get("tools")]
        [sent] = [messages for messages in asked if "In French" in str(messages[-1]["content"])]
        assert [each["role"] for each in sent[-3:]] == ["assistant", "tool", "user"]
        assert await send(api, session, "In French", "steer", "k1") == receipt
        frames = await api.events_through(session, 0, "run_completed")
        [steered] = [frame.data for frame in frames if frame.event == "turn_steered"]
        assert (steered["turn"], steered["place"], steered["from_turn"]) == (1, 3, 2)
        hits = (await api.get("/api/search?q=French"))["hits"]
        assert [hit["turn"] for hit in hits if hit["session_id"] == session and hit["role"] == "user"] == [1]


async def test_a_steered_message_without_another_step_becomes_the_next_turn(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        first = await api.send(session, "count 60")

        async def is_answering() -> bool:
            return any(role == "assistant" and words for _, role, words in await turn_texts(api, session))

        await wait_until(is_answering)
        second = await send(api, session, "And then", "steer")
        await api.wait_for_run(first["run_id"])
        await api.wait_for_run(second["run_id"])
        assert [(turn, role) for turn, role, _ in await turn_texts(api, session)] == [
            (1, "user"), (1, "assistant"), (2, "user"), (2, "assistant"),
        ]  # fmt: skip


async def test_an_interrupt_keeps_partial_output_and_answers_the_new_message(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        first = await api.send(session, "hold")
        await api.wait_for_streaming_text(session, "Well")
        second = await send(api, session, "Something else", "interrupt")
        assert (await api.get(f"/api/runs/{first['run_id']}"))["status"] == "cancelled"
        await api.wait_for_run(second["run_id"])
        assert await turn_texts(api, session) == [
            (1, "user", "hold"), (1, "assistant", "Well"), (2, "user", "Something else"),
            (2, "assistant", "Something else"),
        ]  # fmt: skip


async def test_a_rejected_message_is_a_problem_and_is_not_stored(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        kept = await send(api, session, "Before", "reject", "k")
        await api.wait_for_run(kept["run_id"])
        held = await api.send(session, "hold")
        problem = await send(api, session, "Me too", "reject", "k2")
        assert (api.status, problem["code"]) == (409, "busy") and held["run_id"] in problem["detail"]
        assert await send(api, session, "Before", "reject", "k") == kept
        await api.post(f"/api/runs/{held['run_id']}/cancel")
        assert "Me too" not in [words for _, _, words in await turn_texts(api, session)]
        later = await send(api, session, "Me too", "reject", "k2")
        await api.wait_for_run(later["run_id"])


async def test_an_unknown_if_busy_value_is_refused(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        problem = await send(api, session, "Hello", "shout")
        assert (api.status, problem["code"]) == (400, "bad_request")
        assert await turn_texts(api, session) == []


async def test_a_run_at_its_limit_waits_and_is_resumed(server: RunningServer, tmp_path: Path) -> None:
    async with api_client(server.address) as api:
        session, run_id, go = await start_blocked_run(api, tmp_path)
        # Told before the second step, it makes that one call a tool too: a third step would be needed.
        await send(api, session, "run echo twice", "steer")
        go.touch()
        run = await api.wait_for_run(run_id, "waiting")
        assert (run["waiting"], run["detail"], run["steps"]) == ("limit", "2 steps", 2)
        assert (await api.get(f"/api/sessions/{session}"))["status"] == "needs_you"

        async def is_at_rest() -> bool:
            return "holdfast_runs_at_work 0\n" in (await api.get("/metrics")).decode()

        await wait_until(is_at_rest)
        resumed = await api.post(f"/api/runs/{run_id}/resume")
        assert (api.status, resumed["detail"]) == (200, "")
        await api.wait_for_run(run_id)
        assert (await turn_texts(api, session))[-1][2].startswith("It said:")
        refused = await api.post(f"/api/runs/{run_id}/resume")
        assert (api.status, refused["code"]) == (409, "run_refused")


async def test_a_steered_message_survives_a_kill_and_is_sent_once(
    holdfast: CliHarness, speaker: ScriptedModelServer
) -> None:
    holdfast.environ |= environ_for(speaker)
    first = holdfast.serve("--port", "0")
    async with api_client(first.address) as api:
        session = await api.create_session()
        held = await api.send(session, "hold")
        await api.wait_for_streaming_text(session, "Well")
        receipt = await send(api, session, "Be quick", "steer", "k")
        assert api.status == 202
        first.process.kill()
        first.process.wait()
    second = holdfast.serve("--port", "0")
    async with api_client(second.address) as api:
        await api.wait_for_run(held["run_id"])
        assert [entry for entry in await turn_texts(api, session) if entry[1] != "notice"] == [
            (1, "user", "hold"), (1, "assistant", "Well"), (1, "user", "Be quick"),
            (1, "assistant", "Be quick"),
        ]  # fmt: skip
        assert await send(api, session, "Be quick", "steer", "k") == receipt
        assert (await api.get(f"/api/runs/{receipt['run_id']}"))["status"] == "completed"


async def test_a_kill_during_steering_sends_the_message_once(
    holdfast: CliHarness, speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    holdfast.environ |= environ_for(speaker) | {"HOLDFAST_APPROVALS": "allow"}
    folder = tmp_path / "work"
    folder.mkdir()
    first = holdfast.serve("--port", "0")
    async with api_client(first.address) as api:
        session, run_id, go = await start_blocked_run(api, folder)
        receipt = await send(api, session, "Be quick", "steer")
        following = asyncio.create_task(api.events_through(session, receipt["seq"], "turn_steered"))
        go.touch()
        await following
        first.process.kill()
        first.process.wait()
    second = holdfast.serve("--port", "0")
    async with api_client(second.address) as api:
        await api.wait_for_run(run_id)
        read = await turn_texts(api, session)
        assert [words for _, role, words in read if role == "user"][1:] == ["Be quick"]
        assert (read[-1][1], read[-1][2].startswith("Be")) == ("assistant", True)
        events = [frame.event for frame in await api.events_through(session, 0, "run_completed")]
        assert events.count("turn_steered") == 1
    assert holdfast.run("doctor").returncode == 0


async def test_runs_beyond_the_limit_are_queued_and_answered(
    holdfast: CliHarness, speaker: ScriptedModelServer
) -> None:
    holdfast.environ |= environ_for(speaker) | {"HOLDFAST_RUNS_AT_ONCE": "1"}
    server = holdfast.serve("--port", "0")
    async with api_client(server.address) as api:
        first, second = await api.create_session(), await api.create_session()
        held = await api.send(first, "hold")
        await api.wait_for_streaming_text(first, "Well")
        waiting = await api.send(second, "Hello")
        assert (await api.get(f"/api/runs/{waiting['run_id']}"))["status"] == "accepted"
        assert "holdfast_runs_in_line 1\n" in (await api.get("/metrics")).decode()
        await api.post(f"/api/runs/{held['run_id']}/cancel")
        await api.wait_for_run(waiting["run_id"])
