"""Stopping, dying and starting again, seen through HTTP. The model is a server of its own that lives on."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, wait_until

NUMBERS = "".join(f"{n} " for n in range(100))


@pytest.fixture
def command(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        yield command


async def counted_text(api: ApiClient, session: str) -> str:
    """The numbers that can be read so far."""
    return "".join(words for role, _, words in await api.message_texts(session) if role == "assistant")


async def wait_until_counting(api: ApiClient, session: str) -> None:
    async def has_counted() -> bool:
        return len(await counted_text(api, session)) >= 60

    await wait_until(has_counted)


async def start(command: CliHarness, *words: str) -> RunningServer:
    return await asyncio.to_thread(command.serve, "--port", "0", *words)


async def test_after_a_kill_readers_see_all_earlier_events_and_the_run_continues(
    command: CliHarness, speaker: ScriptedModelServer
) -> None:
    server = await start(command)
    async with api_client(server.address) as api:
        session = await api.create_session(title="Counting")
        with speaker.pausing_count(60):
            run = (await api.send(session, "count 100"))["run_id"]
            await wait_until_counting(api, session)
            seen = await counted_text(api, session)
            server.process.kill()
    again = await start(command)
    async with api_client(again.address) as api:
        first = await api.message_texts(session)
        assert "notice" in {role for role, _, _ in first}
        assert "".join(words for role, _, words in first if role == "assistant").startswith(seen)
        await api.wait_for_run(run)
        assert await counted_text(api, session) == NUMBERS
        assert (await api.get("/metrics")).decode().count("holdfast_recoveries_total 1") == 1


async def test_with_resume_ask_an_interrupted_run_waits_for_a_person(
    command: CliHarness, speaker: ScriptedModelServer
) -> None:
    command.environ["HOLDFAST_RESUME"] = "ask"
    server = await start(command)
    async with api_client(server.address) as api:
        session = await api.create_session(title="Counting")
        with speaker.pausing_count(60):
            run = (await api.send(session, "count 100"))["run_id"]
            await wait_until_counting(api, session)
            server.process.kill()
    again = await start(command)
    async with api_client(again.address) as api:
        assert (await api.get(f"/api/runs/{run}"))["status"] == "interrupted"
        assert (await api.message_texts(session))[-1][:2] == ("notice", "interrupted")
        resumed = await api.post(f"/api/runs/{run}/resume")
        assert (api.status, resumed["status"]) == (200, "running")
        await api.wait_for_run(run)
        assert await counted_text(api, session) == NUMBERS


async def test_sigterm_lets_a_run_finish_its_step_and_refuses_new_requests(
    command: CliHarness, speaker: ScriptedModelServer
) -> None:
    command.environ["HOLDFAST_STOP_GRACE_S"] = "60"
    server = await start(command)
    async with api_client(server.address) as api:
        session = await api.create_session(title="Counting")
        with speaker.pausing_count(60):
            run = (await api.send(session, "count 100"))["run_id"]
            following = asyncio.ensure_future(api.events_through(session, 0, "run_completed"))
            await wait_until_counting(api, session)
            server.process.send_signal(signal.SIGTERM)
            problem = await api.wait_for_field("/health/ready", "code", "stopping")
            assert (api.status, problem["status"]) == (503, 503)
            assert api.headers["connection"] == "close"
            refused = await api.post(f"/api/sessions/{session}/turns", {"text": "Too late"})
            assert (api.status, refused["code"]) == (503, "stopping")
            assert (await api.get("/health/live")) == {"status": "live"}
        frames = await following
        assert frames[-1].event == "run_completed", "the stream follows to the last"
        _, stderr = await asyncio.to_thread(server.process.communicate, timeout=60)
        assert (server.process.returncode, stderr) == (0, "")
    again = await start(command)
    async with api_client(again.address) as api:
        assert (await api.get(f"/api/runs/{run}"))["status"] == "completed"
        assert await counted_text(api, session) == NUMBERS


async def test_sigterm_is_bounded_and_interrupted_runs_resume_at_the_next_start(
    command: CliHarness, speaker: ScriptedModelServer
) -> None:
    command.environ["HOLDFAST_STOP_GRACE_S"] = "0.2"
    server = await start(command)
    # The model says no more until the server has ended.
    async with api_client(server.address) as api:
        with speaker.pausing_count(60):
            session = await api.create_session(title="Counting")
            run = (await api.send(session, "count 100"))["run_id"]
            await wait_until_counting(api, session)
            server.process.send_signal(signal.SIGTERM)
            _, stderr = await asyncio.to_thread(server.process.communicate, timeout=60)
        assert (server.process.returncode, stderr) == (0, "")
    again = await start(command)
    async with api_client(again.address) as api:
        await api.wait_for_run(run)
        assert await counted_text(api, session) == NUMBERS


async def test_a_second_signal_does_not_wait_for_the_answers(command: CliHarness) -> None:
    command.environ["HOLDFAST_STOP_GRACE_S"] = "60"
    server = await start(command)
    async with api_client(server.address) as api:
        session = await api.create_session(title="Waiting")
        await api.send(session, "hold")
        await api.wait_for_streaming_text(session, "Well")
        server.process.send_signal(signal.SIGTERM)
        await api.wait_for_field("/health/ready", "code", "stopping")
        server.process.send_signal(signal.SIGTERM)
        _, stderr = await asyncio.to_thread(server.process.communicate, timeout=60)
        assert (server.process.returncode, stderr) == (0, "")


async def test_two_servers_on_one_folder_agree_and_one_takes_over_for_the_other(
    command: CliHarness, speaker: ScriptedModelServer
) -> None:
    first, second = await asyncio.gather(start(command), start(command))
    async with api_client(first.address) as one, api_client(second.address) as two:
        session = await one.create_session(title="Shared")
        following = asyncio.ensure_future(two.events_through(session, 0, "run_completed"))
        with speaker.pausing_count(60):
            receipt = await one.send(session, "count 100", "key")
            assert await two.send(session, "count 100", "key") == receipt
            await wait_until_counting(two, session)
            seen = await counted_text(two, session)
            first.process.kill()
        frames = await following
        assert [int(frame.id) for frame in frames] == list(range(1, len(frames) + 1))
        assert (await counted_text(two, session)).startswith(seen)
        assert await counted_text(two, session) == NUMBERS


async def test_a_key_is_in_the_environment_of_nothing_that_is_started(command: CliHarness) -> None:
    command.environ |= {"OPENAI_API_KEY": "sk-of-mine-0123456789", "HOLDFAST_APPROVALS": "allow"}
    server = await start(command)
    async with api_client(server.address) as api:
        session = await api.create_session(title="Secrets")
        await api.wait_for_run((await api.send(session, "run env"))["run_id"])
        said = "".join(words for _, _, words in await api.message_texts(session))
        assert "PATH=" in said
        assert "sk-of-mine" not in said
    assert "sk-of-mine" not in "\n".join(server.output_lines)
