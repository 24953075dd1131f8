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
from tests.support.memory_server_harness import Household, household
from tests.support.recording_clients import Memory

DOG, TEA, ASKED = "My dog is called Rex.", "I like tea.", "What is my dog called?"
GRACE_S = "2"
ENDS_S_MAX = 30
"""Far more than the grace and far less than a provider may take: a machine may be busy."""


async def _talk_undisturbed(home: Household) -> Memory:
    """A conversation that must go as if memory were well."""
    talk = await home.begin()
    for text in (DOG, TEA, ASKED):
        await home.say(talk, text)
    ends = [seen.kind for seen in talk.of_kind("run_completed", "run_failed", "run_cancelled")]
    assert ends == ["run_completed"] * 3
    _, page = await home.insist("GET", f"/api/sessions/{talk.session_id}/messages?limit=50")
    answers = [each["parts"][0]["text"] for each in page["messages"] if each["role"] == "assistant"]
    assert answers == ["I see. Noted.", "I see. Noted.", "You told me that your dog is called Rex."]
    told_of = {"memory_commit_started", "memory_commit_failed", "memory_committed"}
    others = [seen.body for seen in talk.events.values() if seen.kind not in told_of]
    assert not any(body.get("failure") for body in others), others
    return talk


@pytest.mark.parametrize("fault", ["fail", "break", "rubbish", "late 2"])
async def test_no_turn_notices_what_memory_does_and_it_is_told_once_it_is_well(fault: str) -> None:
    async with household(memory_idle_s="1") as home:
        for verb in ("commit", "recall"):
            home.witness.order(verb, "before" if fault != "rubbish" else "after", fault)
        talk = await _talk_undisturbed(home)
        assert home.witness.calls("recall"), "it was asked, at the start of the first turn at least"
        assert not any("no memory" in str(body) for body in home.model.asked)
        home.witness.lift_all()
        await home.witness.until(lambda: bool(home.witness.calls("commit", "asked")), "a telling")
        await _asked_until_told(home)
        await home.remembered(talk, 1, 2, 3)


@pytest.mark.parametrize("fault", ["hang", "deaf"])
async def test_a_memory_that_hangs_holds_up_nobody_and_is_told_after_the_restart(fault: str) -> None:
    async with household(memory_idle_s="1", stop_grace_s=GRACE_S) as home:
        for verb in ("commit", "recall"):
            home.witness.order(verb, "before", fault)
        talk = await _talk_undisturbed(home)
        await home.witness.until(home.witness.waits_at("commit", "before"), "a telling that hangs")
        await home.say(talk, "I live in Lisbon.")
        await _end_in_time(home)
        home.witness.lift_all()
        await home.server.start()
        await home.remembered(talk, 1, 2, 3, 4)


@pytest.mark.parametrize("fault", ["hang", "deaf", "block 100", "late 100", "fail", "break", "rubbish"])
async def test_a_server_ends_in_time_whatever_memory_does_and_still_owes_it(fault: str) -> None:
    async with household(stop_grace_s=GRACE_S) as home:
        talk = await home.begin()
        await home.say(talk, DOG)
        home.witness.order("commit", "after" if fault == "rubbish" else "before", fault)
        await _end_in_time(home)
        assert home.witness.calls("commit", "asked"), "the end is a reason to tell it"
        assert not talk.of_kind("memory_committed")
        home.witness.lift_all()
        await home.server.start()
        await _asked_until_told(home)
        await home.remembered(talk, 1)


async def test_a_server_ends_in_time_while_somebody_has_memory_told_that_hangs() -> None:
    async with household(stop_grace_s=GRACE_S) as home:
        talk = await home.begin()
        await home.say(talk, DOG)
        home.witness.order("commit", "before", "hang")
        home.ask_to_remember(talk)
        await home.witness.until(home.witness.waits_at("commit", "before"), "a telling that hangs")
        await _end_in_time(home)
        home.witness.lift_all()
        await home.server.start()
        await _asked_until_told(home)
        await home.remembered(talk, 1)


async def test_a_memory_that_is_down_for_long_is_told_of_everything_when_it_is_back() -> None:
    async with household() as home:
        home.witness.order("commit", "before", "fail")
        first, second = await home.begin(), await home.begin()
        for talk, text in ((first, DOG), (second, TEA), (first, TEA)):
            await home.say(talk, text)
            status, answer = await home.ask("POST", "/api/memory/commit", {})
            assert status == 200 and answer["outcome"] == "failed" and "told to fail" in answer["detail"]
        for _ in range(2):
            await home.server.end()
            await home.server.start()
        rows = await home.waiting()
        assert {row["session_id"] for row in rows} == {first.session_id, second.session_id}
        assert all("told to fail" in row["detail"] and row["retry_at"] for row in rows if row["attempts"])
        assert not home.witness.held()
        home.witness.lift("commit", "before")
        assert (await home.ask("POST", "/api/memory/commit", {}))[1]["outcome"] == "paid"
        await home.remembered(first, 1, 2)
        await home.remembered(second, 1)


async def test_what_is_owed_to_a_memory_that_is_turned_off_waits_until_it_is_turned_on() -> None:
    async with household(stop_grace_s=GRACE_S) as home:
        talk = await home.begin()
        await home.say(talk, DOG)
        home.witness.order("commit", "before", "fail")
        await home.server.end()
        home.witness.lift_all()
        home.server.change(memory="off")
        await home.server.start()
        await home.say(talk, TEA)
        assert [row["session_id"] for row in await home.waiting()] == [talk.session_id]
        await home.server.end()
        assert not home.witness.held(), "whoever turned memory off is not to be remembered"
        home.server.change(memory="witness")
        await home.server.start()
        await _asked_until_told(home)
        await home.remembered(talk, 1)


# The same through the webhook, against a server that misbehaves.


class Receiver:
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
async def _receiving(port: int = 0) -> AsyncIterator[Receiver]:
    receiver, app = Receiver(), web.Application(client_max_size=10_000_000)
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
async def test_no_turn_notices_what_a_webhook_does_and_it_is_told_once_it_is_well(fault: str) -> None:
    async with (
        _receiving() as receiver,
        household(memory="webhook", memory_webhook_url=receiver.url, stop_grace_s=GRACE_S) as home,
    ):
        receiver.fault = fault
        talk = await _talk_undisturbed(home)
        asking = home.ask_to_remember(talk)
        await home.witness.until(lambda: bool(receiver.commits()), "a telling")
        if fault != "hangs":
            assert (await asking)[1]["outcome"] == ("paid" if fault == "is slow" else "failed")
        await _end_in_time(home)
        receiver.fault = ""
        await home.server.start()
        await _asked_until_told(home)
        (kept,) = receiver.kept.values()
        texts = [said["text"] for said in kept["messages"] if said["role"] == "user"]
        assert kept["session_id"] == talk.session_id and texts == [DOG, TEA, ASKED]
        told = {(body["key"], str(body["messages"])) for body in receiver.commits()}
        assert len(told) == 1, "every try says the same"


async def test_a_webhook_that_nobody_answers_is_told_when_somebody_does() -> None:
    port = own_port()
    url = f"http://127.0.0.1:{port}/memory"
    async with household(memory="webhook", memory_webhook_url=url, stop_grace_s=GRACE_S) as home:
        talk = await _talk_undisturbed(home)
        assert (await home.ask("POST", "/api/memory/commit", {}))[1]["outcome"] == "failed"
        await _end_in_time(home)
        await home.server.start()
        (row,) = await home.waiting()
        assert row["state"] == "failed" and row["detail"]
        async with _receiving(port) as receiver:
            await _asked_until_told(home)
            assert [kept["session_id"] for kept in receiver.kept.values()] == [talk.session_id]


async def _end_in_time(home: Household) -> None:
    began = time.monotonic()
    await home.server.end()  # And with status 0.
    assert time.monotonic() - began < ENDS_S_MAX, "memory kept the server from ending"


async def _asked_until_told(home: Household) -> None:
    """A person asks, and again where something was under way already that failed for its own reasons."""
    answer: Any = None
    for _ in range(1_000):
        status, answer = await home.ask("POST", "/api/memory/commit", {})
        assert status == 200, answer
        if not await home.waiting():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"memory is not told: {answer}")
