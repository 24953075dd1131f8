"""One process at a time serves a chat app; another takes over; how each fares can be seen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.channels.ports import ChannelFailure, Take
from holdfast.channels.worker import NoSuchChannel
from tests.support.fake_channel import Parlour, ParlourChannel, desk, gateway_of
from tests.support.in_process_app import house, says


async def briefly(wait_s: float) -> None:
    """Nobody's right to serve runs out while a slow machine stands still, and nobody waits long for it."""
    await asyncio.sleep(min(wait_s, 0.05))


async def test_another_process_takes_over_when_the_one_that_served_is_gone(tmp_path: Path) -> None:
    app = Parlour()
    async with (
        house(tmp_path / "data") as home,
        desk(home, app, sleep=briefly) as at,
        house(tmp_path / "data", started=False) as other,
    ):
        home.model.steps = [says("one")]
        told: list[str] = []
        stand_by = gateway_of(other, app, told, sleep=briefly)
        await stand_by.start()
        app.say("1")
        await at.quiet()
        assert at.gateway.states()[0].serving and not stand_by.states()[0].serving
        await at.gateway.stop(0.0)
        home.model.steps = other.model.steps = [says("two")]
        app.say("2")
        await at.shown("one", "two")
        await at.quiet()
        assert stand_by.states()[0].serving
        await stand_by.stop(1.0)
        assert not told


async def test_what_one_process_takes_in_is_worked_off_by_the_one_that_serves(tmp_path: Path) -> None:
    app = Parlour()
    async with (
        house(tmp_path / "data") as home,
        desk(home, app) as at,
        house(tmp_path / "data", started=False) as other,
    ):
        home.model.steps = [says("one")]
        beside = gateway_of(other, app, [])
        inbound = app.say("1")
        app.unread.clear()
        await beside.take("parlour")(inbound)
        await at.shown("one")
        await at.quiet()


async def test_a_channel_that_fails_to_listen_is_listened_to_again_and_says_why(tmp_path: Path) -> None:
    class Deaf(ParlourChannel):
        tries = 0

        async def listen(self, take: Take) -> None:
            self.tries += 1
            if self.tries == 1:
                raise ChannelFailure(channel=self.name, detail="no such bot")
            await super().listen(take)

    app = Parlour()
    channel = Deaf(app)
    async with house(tmp_path) as home, desk(home, app, channel=channel) as at:

        async def is_told() -> bool:
            return bool(at.gateway.states()[0].last_error)

        await home.until(is_told, "a failure")
        assert at.gateway.states()[0].last_error == "parlour: no such bot."
        home.model.steps = [says("one")]
        app.say("1")
        await at.shown("one")
        assert at.gateway.states()[0].last_error == ""


async def test_a_channel_can_be_added_tested_and_removed_while_others_work(tmp_path: Path) -> None:
    first, second = Parlour(), Parlour("other")
    async with house(tmp_path) as home, desk(home, first) as at:
        at.gateway.add(ParlourChannel(second))
        assert (await at.gateway.test("other")).ok
        assert [state.name for state in at.gateway.states()] == ["parlour", "other"]
        await at.gateway.remove("other")
        with pytest.raises(NoSuchChannel):
            at.gateway.take("other")
        home.model.steps = [says("one")]
        first.say("1")
        await at.shown("one")


async def test_stopping_waits_for_what_is_being_sent_and_no_longer_than_said(tmp_path: Path) -> None:
    app = Parlour()
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [says("one")]
        app.hold = asyncio.Event()
        app.say("1")

        async def is_sending() -> bool:
            rows = await home.store.deliveries("agent:main:parlour:dm:42", 1)
            return bool(rows) and rows[0].state == "sending"

        await home.until(is_sending, "a try")
        stopping = asyncio.create_task(at.gateway.stop(10.0))
        await asyncio.sleep(0.05)
        app.hold.set()
        await stopping
        (row,) = await home.store.deliveries("agent:main:parlour:dm:42", 1)
        assert row.state == "sent" and app.texts() == ["one"]


async def test_what_is_counted_can_be_read(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one")]
        at.app.say("1")
        await at.quiet()
        (state,) = at.gateway.states()
        assert (state.received, state.delivered["sent"], state.last_error) == (1, 1, "")
        assert state.last_seen_at > 0


async def test_a_chat_that_cannot_be_told_is_tried_again_and_the_others_are_told(tmp_path: Path) -> None:
    async with house(tmp_path) as home, desk(home) as at:
        home.model.steps = [says("one"), says("two")]
        plan, failures = home.store.plan, 0

        async def fails_at_first(key: str, *rest: Any) -> bool:
            nonlocal failures
            if key.endswith(":42") and failures < 2:
                failures += 1
                raise RuntimeError("cannot plan")
            return await plan(key, *rest)

        home.store.plan = fails_at_first  # type: ignore[method-assign]
        at.app.say("1", chat="42")
        await at.shown("one", chat="42")
        at.app.say("2", chat="43")
        await at.shown("two", chat="43")
        assert failures == 2 and len([line for line in at.told if "cannot plan" in line]) == 2
