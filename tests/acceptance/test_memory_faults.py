"""A memory that hangs, fails, is slow, answers with rubbish or is away: nobody who talks notices, the server
ends when it is told to, and what is owed is told once memory is back.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from tests.support.free_ports import own_port
from tests.support.memory_server_harness import MemoryServerHarness, memory_server_harness
from tests.support.recording_clients import SessionRecorder

DOG, TEA, ASKED = "My dog is called Rex.", "I like tea.", "What is my dog called?"
GRACE_S = "2"
ENDS_S_MAX = 30
"""Far more than the grace and far less than a provider may take: a machine may be busy."""


async def _check_chat_unaffected(harness: MemoryServerHarness) -> SessionRecorder:
    """A conversation that must go as if memory were well."""
    session = await harness.create_session()
    for text in (DOG, TEA, ASKED):
        await harness.send(session, text)
    ends = [seen.kind for seen in session.of_kind("run_completed", "run_failed", "run_cancelled")]
    assert ends == ["run_completed"] * 3
    _, page = await harness.request_until_answered(
        "GET", f"/api/sessions/{session.session_id}/messages?limit=50"
    )
    answers = [each["parts"][0]["text"] for each in page["messages"] if each["role"] == "assistant"]
    assert answers == ["I see. Noted.", "I see. Noted.", "You told me that your dog is called Rex."]
    memory_kinds = {"memory_commit_started", "memory_commit_failed", "memory_committed"}
    others = [seen.body for seen in session.events.values() if seen.kind not in memory_kinds]
    assert not any(body.get("failure") for body in others), others
    return session


@pytest.mark.parametrize("fault", ["fail", "break", "rubbish", "late 2"])
async def test_memory_faults_affect_no_turn_and_commits_follow_on_recovery(fault: str) -> None:
    async with memory_server_harness(memory_idle_s="1") as harness:
        for verb in ("commit", "recall"):
            harness.witness.set_order(verb, "before" if fault != "rubbish" else "after", fault)
        talk = await _check_chat_unaffected(harness)
        assert harness.witness.calls("recall"), "it was asked, at the start of the first turn at least"
        assert not any("no memory" in str(body) for body in harness.model.requests)
        harness.witness.clear_orders()
        await harness.witness.wait_until(lambda: bool(harness.witness.calls("commit", "asked")), "a telling")
        await _commit_until_done(harness)
        await harness.wait_until_remembered(talk, 1, 2, 3)


@pytest.mark.parametrize("fault", ["hang", "deaf"])
async def test_a_hanging_memory_blocks_nobody_and_gets_its_commits_after_the_restart(fault: str) -> None:
    async with memory_server_harness(memory_idle_s="1", stop_grace_s=GRACE_S) as harness:
        for verb in ("commit", "recall"):
            harness.witness.set_order(verb, "before", fault)
        talk = await _check_chat_unaffected(harness)
        await harness.witness.wait_until(
            harness.witness.is_waiting_at("commit", "before"), "a telling that hangs"
        )
        await harness.send(talk, "I live in Lisbon.")
        await _end_in_time(harness)
        harness.witness.clear_orders()
        await harness.server.start()
        await harness.wait_until_remembered(talk, 1, 2, 3, 4)


@pytest.mark.parametrize("fault", ["hang", "deaf", "block 100", "late 100", "fail", "break", "rubbish"])
async def test_a_server_stops_in_time_during_memory_faults_and_keeps_its_queue(fault: str) -> None:
    async with memory_server_harness(stop_grace_s=GRACE_S) as harness:
        session = await harness.create_session()
        await harness.send(session, DOG)
        harness.witness.set_order("commit", "after" if fault == "rubbish" else "before", fault)
        await _end_in_time(harness)
        assert harness.witness.calls("commit", "asked"), "the end is a reason to tell it"
        assert not session.of_kind("memory_committed")
        harness.witness.clear_orders()
        await harness.server.start()
        await _commit_until_done(harness)
        await harness.wait_until_remembered(session, 1)


async def test_a_server_stops_in_time_during_a_hanging_manual_commit() -> None:
    async with memory_server_harness(stop_grace_s=GRACE_S) as harness:
        session = await harness.create_session()
        await harness.send(session, DOG)
        harness.witness.set_order("commit", "before", "hang")
        harness.request_commit(session)
        await harness.witness.wait_until(
            harness.witness.is_waiting_at("commit", "before"), "a telling that hangs"
        )
        await _end_in_time(harness)
        harness.witness.clear_orders()
        await harness.server.start()
        await _commit_until_done(harness)
        await harness.wait_until_remembered(session, 1)


async def test_a_long_memory_outage_ends_with_every_commit_delivered() -> None:
    async with memory_server_harness() as harness:
        harness.witness.set_order("commit", "before", "fail")
        first, second = await harness.create_session(), await harness.create_session()
        for talk, text in ((first, DOG), (second, TEA), (first, TEA)):
            await harness.send(talk, text)
            status, answer = await harness.request("POST", "/api/memory/commit", {})
            assert status == 200 and answer["outcome"] == "failed" and "told to fail" in answer["detail"]
        for _ in range(2):
            await harness.server.shut_down()
            await harness.server.start()
        rows = await harness.pending_commits()
        assert {row["session_id"] for row in rows} == {first.session_id, second.session_id}
        assert all("told to fail" in row["detail"] and row["retry_at"] for row in rows if row["attempts"])
        assert not harness.witness.stored_commits()
        harness.witness.clear_order("commit", "before")
        assert (await harness.request("POST", "/api/memory/commit", {}))[1]["outcome"] == "paid"
        await harness.wait_until_remembered(first, 1, 2)
        await harness.wait_until_remembered(second, 1)


async def test_pending_commits_wait_while_memory_is_off() -> None:
    async with memory_server_harness(stop_grace_s=GRACE_S) as harness:
        session = await harness.create_session()
        await harness.send(session, DOG)
        harness.witness.set_order("commit", "before", "fail")
        await harness.server.shut_down()
        harness.witness.clear_orders()
        harness.server.change_settings(memory="off")
        await harness.server.start()
        await harness.send(session, TEA)
        assert [row["session_id"] for row in await harness.pending_commits()] == [session.session_id]
        await harness.server.shut_down()
        assert not harness.witness.stored_commits(), "whoever turned memory off is not to be remembered"
        harness.server.change_settings(memory="witness")
        await harness.server.start()
        await _commit_until_done(harness)
        await harness.wait_until_remembered(session, 1)


# The same through the webhook, against a server that misbehaves.


class FaultyReceiver:
    """Keeps what it is told, by key; `fault` says how it misbehaves instead."""

    def __init__(self) -> None:
        self.url = ""
        self.fault = ""
        self.asked: list[dict[str, Any]] = []
        self.kept: dict[str, dict[str, Any]] = {}

    def commits(self) -> list[dict[str, Any]]:
        return [body for body in self.asked if body["type"] == "memory.commit"]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        match self.fault:
            case "refuses":
                return web.json_response({"detail": "out of order"}, status=500)
            case "hangs":
                await asyncio.sleep(300)
            case "is slow":
                await asyncio.sleep(2)
            case "is no JSON":
                return web.Response(text="<h1>It works!</h1>")
            case "has another shape":
                return web.json_response({"receipt": {"n": 1}, "memories": 7})
            case "sends elsewhere":
                raise web.HTTPFound(f"{self.url}/elsewhere")
            case "breaks off" if request.transport is not None:
                request.transport.abort()
        if body["type"] == "memory.commit":
            self.kept.setdefault(body["key"], body)
            return web.json_response({"receipt": body["key"]})
        return web.json_response({"memories": []})


@asynccontextmanager
async def _serve_receiver(port: int = 0) -> AsyncIterator[FaultyReceiver]:
    receiver, app = FaultyReceiver(), web.Application(client_max_size=10_000_000)
    app.router.add_post("/{path:.*}", receiver.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/memory"
        yield receiver
    finally:
        await runner.cleanup()


FAULTS = ["refuses", "hangs", "is slow", "is no JSON", "has another shape", "sends elsewhere", "breaks off"]


@pytest.mark.parametrize("fault", FAULTS)
async def test_memory_webhook_faults_affect_no_turn_and_commits_follow_on_recovery(fault: str) -> None:
    async with (
        _serve_receiver() as receiver,
        memory_server_harness(
            memory="webhook", memory_webhook_url=receiver.url, stop_grace_s=GRACE_S
        ) as harness,
    ):
        receiver.fault = fault
        talk = await _check_chat_unaffected(harness)
        asking = harness.request_commit(talk)
        await harness.witness.wait_until(lambda: bool(receiver.commits()), "a telling")
        if fault != "hangs":
            assert (await asking)[1]["outcome"] == ("paid" if fault == "is slow" else "failed")
        await _end_in_time(harness)
        receiver.fault = ""
        await harness.server.start()
        await _commit_until_done(harness)
        (kept,) = receiver.kept.values()
        texts = [said["text"] for said in kept["messages"] if said["role"] == "user"]
        assert kept["session_id"] == talk.session_id and texts == [DOG, TEA, ASKED]
        commits = {(body["key"], str(body["messages"])) for body in receiver.commits()}
        assert len(commits) == 1, "every try says the same"


async def test_an_unreachable_memory_webhook_gets_its_commits_once_reachable() -> None:
    port = own_port()
    url = f"http://127.0.0.1:{port}/memory"
    async with memory_server_harness(
        memory="webhook", memory_webhook_url=url, stop_grace_s=GRACE_S
    ) as harness:
        talk = await _check_chat_unaffected(harness)
        assert (await harness.request("POST", "/api/memory/commit", {}))[1]["outcome"] == "failed"
        await _end_in_time(harness)
        await harness.server.start()
        (row,) = await harness.pending_commits()
        assert row["state"] == "failed" and row["detail"]
        async with _serve_receiver(port) as receiver:
            await _commit_until_done(harness)
            assert [kept["session_id"] for kept in receiver.kept.values()] == [talk.session_id]


async def _end_in_time(harness: MemoryServerHarness) -> None:
    began = time.monotonic()
    await harness.server.shut_down()  # And with status 0.
    assert time.monotonic() - began < ENDS_S_MAX, "memory kept the server from ending"


async def _commit_until_done(harness: MemoryServerHarness) -> None:
    """A person asks, and again where something was under way already that failed for its own reasons."""
    answer: Any = None
    for _ in range(1_000):
        status, answer = await harness.request("POST", "/api/memory/commit", {})
        assert status == 200, answer
        if not await harness.pending_commits():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"memory is not told: {answer}")
