"""What is told in one conversation is known in the next: after a new beginning, a kill, another model."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, api_client, scripted_model_server, text_of, wait_until
from tests.support.memory_model_server import MemoryModelServer

REX, ASKED = "My dog is called Rex.", "What is my dog called?"
KNOWN, NOTED = "You told me that your dog is called Rex.", "The user's dog is called Rex."
QUIET = {"HOLDFAST_MEMORY_IDLE_S": "86400"}
"""Nothing is told because time has passed: only what the test does is an occasion."""


@pytest.fixture
def model() -> Iterator[MemoryModelServer]:
    with scripted_model_server(MemoryModelServer()) as model:
        assert isinstance(model, MemoryModelServer)
        yield model


@pytest.fixture
def command(model: MemoryModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(model), **QUIET) as command:
        yield command


async def start_conversation(api: ApiClient, text: str = REX) -> str:
    session = await api.create_session(title="About me")
    await api.wait_for_run((await api.send(session, text))["run_id"])
    return session


async def answer(api: ApiClient, session: str, text: str = ASKED) -> str:
    await api.wait_for_run((await api.send(session, text))["run_id"])
    return text_of((await api.entries(session))[-1])


async def memory_texts(api: ApiClient) -> list[str]:
    return [each["text"] for each in (await api.get("/api/memory"))["memories"]]


async def wait_for_memories(api: ApiClient, *wanted: str) -> None:
    async def has_memories() -> bool:
        return sorted(await memory_texts(api)) == sorted(wanted)

    await wait_until(has_memories, 60)


def chat_requests(model: MemoryModelServer) -> list[dict[str, Any]]:
    """What the model was asked by conversations."""
    return [body for body in model.requests if body.get("tools")]


def last_chat(model: MemoryModelServer) -> str:
    return "\n".join(str(message["content"]) for message in chat_requests(model)[-1]["messages"])


def kill(server: RunningServer) -> None:
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(20)


async def test_a_fact_from_one_conversation_is_recalled_in_the_next(
    command: CliHarness, model: MemoryModelServer
) -> None:
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        first = await start_conversation(api)
        second = await api.create_session(previous_session_id=first)
        await wait_for_memories(api, NOTED)
        assert await answer(api, second) == KNOWN
        assert NOTED in last_chat(model)
        (memory,) = (await api.get("/api/memory"))["memories"]
        assert (memory["session_id"], memory["title"], memory["by"]) == (first, "About me", "model")
        # What the conversation has been given is not given again.
        assert await answer(api, second) == KNOWN
        assert last_chat(model).count(NOTED) == 1
        await api.request("DELETE", f"/api/memory/{memory['id']}")
        assert api.status == 204
        third = await api.create_session()
        assert await answer(api, third) == "I do not know your dog."


async def test_a_kill_between_commit_and_recall_loses_nothing(
    command: CliHarness, model: MemoryModelServer
) -> None:
    server = command.serve("--port", "0")
    model.extraction.hangs = True
    async with api_client(server.address) as api:
        first = await start_conversation(api)
        await api.create_session(previous_session_id=first)

        async def is_asked() -> bool:
            return bool(model.extractions)

        await wait_until(is_asked, 60)
    kill(server)
    model.extraction.hangs = False
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        await wait_for_memories(api, NOTED)
        await api.wait_for_field("/api/memory", "waiting", 0)
        assert await answer(api, await api.create_session()) == KNOWN
        assert NOTED in last_chat(model)


async def test_a_session_without_remember_is_neither_committed_nor_given_memories(
    command: CliHarness, model: MemoryModelServer
) -> None:
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        await api.post("/api/memory", {"text": NOTED})
        assert api.status == 201
        secret = await api.create_session(remember=False)
        assert await answer(api, secret) == "I do not know your dog."
        assert NOTED not in last_chat(model)
        await answer(api, secret, "I live in Oslo.")
        result: dict[str, Any] = await api.post("/api/memory/commit", {"session_id": secret})
        assert result["outcome"] == "nothing"
        assert model.extractions == []


async def test_the_memory_tools_need_no_approval(command: CliHarness, model: MemoryModelServer) -> None:
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        session = await api.create_session(title="Of tea")
        said = await answer(api, session, "Remember that I like tea.")
        assert said == "It said: Remembered: I like tea."
        assert await memory_texts(api) == ["I like tea."]
        found = await answer(api, await api.create_session(), "Look in memory for tea")
        assert "I like tea." in found and "from the conversation “Of tea”" in found
        events = await api.events_through(session, 0, "run_completed")
        assert "approval_requested" not in {frame.event for frame in events}


async def test_a_previous_model_commits_its_turns_while_still_connected(
    command: CliHarness, model: MemoryModelServer
) -> None:
    del command.environ["HOLDFAST_MODEL"]
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        first = await start_conversation(api)
        await api.post("/api/models/connect", {"base_url": model.url, "model": "larger"})
        assert api.status in (200, 201, 204)
        second = await start_conversation(api, "I live in Oslo.")
        for session in (first, second):
            result = await api.post("/api/memory/commit", {"session_id": session})
            assert (result["outcome"], result["paid"]) == ("paid", 1), result
        earlier, later = (body["model"] for body in model.extractions)
        assert earlier != later == "larger"


async def test_a_commit_without_an_owner_explains_why_it_waits(
    command: CliHarness, model: MemoryModelServer
) -> None:
    del command.environ["HOLDFAST_MODEL"]
    command.environ["OPENAI_API_KEY"] = "sk-the-first-one-of-all"
    server = command.serve("--port", "0")
    with scripted_model_server(MemoryModelServer()) as other:
        assert isinstance(other, MemoryModelServer)
        async with api_client(server.address) as api:
            first = await start_conversation(api)
        kill(server)
        # The first server is not known any more, and its key is for no other.
        command.environ["OPENAI_BASE_URL"] = other.url
        server = command.serve("--port", "0")
        async with api_client(server.address) as api:
            await answer(api, await api.create_session(previous_session_id=first), "I live in Oslo.")
            assert "is not connected any more" in await wait_for_reason(api, first)
            assert model.extractions == other.extractions == []
            # A person who asks for it has the present agent tell it.
            result = await api.post("/api/memory/commit", {"session_id": first})
            assert (result["outcome"], result["paid"]) == ("paid", 1), result
            assert await memory_texts(api) == [NOTED]
            assert len(other.extractions) == 1 and model.extractions == []


async def wait_for_reason(api: ApiClient, session: str) -> str:
    """Why memory has not been told of a conversation, once somebody has tried."""
    why = ""

    async def has_reason() -> bool:
        nonlocal why
        waiting = (await api.get("/api/memory/waiting"))["waiting"]
        why = next(each["detail"] for each in waiting if each["session_id"] == session)
        return bool(why)

    await wait_until(has_reason, 60)
    return why


async def test_with_memory_off_nothing_is_queued_and_no_tools_are_offered(
    command: CliHarness, model: MemoryModelServer
) -> None:
    command.environ["HOLDFAST_MEMORY"] = "off"
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        first = await start_conversation(api)
        assert (
            await answer(api, await api.create_session(previous_session_id=first))
            == "I do not know your dog."
        )
        info = await api.get("/api/memory")
        assert (info["provider"], info["waiting"], info["memories"]) == ("off", 0, [])
        offered = {each["function"]["name"] for each in chat_requests(model)[-1]["tools"]}
        assert offered.isdisjoint({"remember", "recall"}) and "shell" in offered
        assert model.extractions == []


async def test_pending_commits_are_flushed_when_the_server_stops(
    command: CliHarness, model: MemoryModelServer
) -> None:
    command.environ["HOLDFAST_STOP_GRACE_S"] = "60"
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        await start_conversation(api)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0
    assert len(model.extractions) == 1
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        assert await memory_texts(api) == [NOTED]
        assert len(model.extractions) == 1


async def test_an_undone_turn_is_retracted_from_memory(command: CliHarness, model: MemoryModelServer) -> None:
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        session = await start_conversation(api)
        assert (await api.post("/api/memory/commit", {"session_id": session}))["outcome"] == "paid"
        assert await memory_texts(api) == [NOTED]
        await api.post(f"/api/sessions/{session}/undo")
        assert api.status in (200, 204)
        await wait_for_memories(api)
        assert await answer(api, await api.create_session()) == "I do not know your dog."


async def test_a_second_signal_does_not_wait_for_memory(
    command: CliHarness, model: MemoryModelServer
) -> None:
    command.environ["HOLDFAST_STOP_GRACE_S"] = "600"
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        await start_conversation(api)
    model.extraction.hangs = True
    server.process.send_signal(signal.SIGINT)
    assert server.process.stdout is not None
    said = await asyncio.to_thread(server.process.stdout.readline)
    if said.startswith("Stopping"):  # The run was just about to leave.
        said = await asyncio.to_thread(server.process.stdout.readline)
    assert said.startswith("Remembering what was said.")
    assert server.process.poll() is None and len(model.extractions) == 1
    server.process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(server.process.wait, 60) == 0
    model.extraction.hangs = False
    server = command.serve("--port", "0")
    async with api_client(server.address) as api:
        await wait_for_memories(api, NOTED)
