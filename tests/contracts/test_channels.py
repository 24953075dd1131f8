"""G: chat apps. What is delivered is recorded before it is tried; what came twice makes one turn."""

import asyncio
from pathlib import Path

import pytest

from holdfast.channels.pairing import Pairing, Sender
from holdfast.domain.chats import Chat
from holdfast.domain.clock import SystemClock
from tests.support.crashing_proxy import CHANNEL_STEPS, Fate, Mortal
from tests.support.fake_channel import ADA, Desk, Parlour, ParlourChannel, desk, gateway_of
from tests.support.in_process_app import house, says

KEY = Chat("parlour", "dm", "42").route


async def test_a_delivery_is_recorded_before_it_is_tried_and_receipted_after(tmp_path: Path) -> None:
    """G9"""
    app = Parlour()
    app.hold = asyncio.Event()
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [says("the answer")]
        app.say("hello")

        async def is_tried() -> bool:
            rows = await home.store.deliveries(KEY, 1)
            return bool(rows) and rows[0].state == "sending"

        await home.until(is_tried, "a try")
        (row,) = await home.store.deliveries(KEY, 1)
        assert (row.body.text, row.attempts, row.platform_id) == ("the answer", 1, "")
        assert row.process_id == home.store.own_process and not app.texts()
        app.hold.set()
        await at.quiet()
        (row,) = await home.store.deliveries(KEY, 1)
        assert (row.state, row.platform_id) == ("sent", app.chats["42"][0].id)


@pytest.mark.parametrize("dedupes", [True, False])
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_crash_between_the_two_is_retried_or_shown_as_in_doubt_by_what_the_app_can_tell(
    tmp_path: Path, dedupes: bool, arrives: bool
) -> None:
    """G9"""
    app = Parlour(dedupes=dedupes)
    fate = Fate(1, is_after=arrives)
    async with house(tmp_path) as home:
        pairing = Pairing(home.store, SystemClock(), lambda bits: 1)
        await pairing.allow(Sender("parlour", ADA, "Ada", 0))
        home.model.steps = [says("the answer")]
        channel = Mortal(ParlourChannel(app), fate, CHANNEL_STEPS)
        doomed = gateway_of(home, app, [], channel=channel)
        await doomed.start()
        app.say("hello")
        async with asyncio.timeout(30):
            await fate.is_over.wait()
        fate.bury()
        await doomed.stop(0.0)
        assert app.texts() == (["the answer"] if arrives else [])
        async with desk(home, app) as at:
            await at.quiet()
            events = await home.events(await at.session())
        again = "the answer" if dedupes else "(again) the answer"
        first = ["the answer"] if arrives and not dedupes else []
        assert app.texts() == [*first, again]
        assert events.count("delivery_in_doubt") == (0 if dedupes else 1)


async def test_an_update_that_comes_twice_makes_one_turn_also_after_a_crash(tmp_path: Path) -> None:
    """G9"""
    app = Parlour()
    async with house(tmp_path) as home:
        home.model.steps = [says("once")]
        async with desk(home, app) as at:
            inbound = app.say("hello")
            app.tell(inbound)
            await at.quiet()
        app.tell(inbound)
        async with desk(home, app) as at:
            await _taken(at)
            assert (await home.store.session(await at.session())).last_turn == 1
            assert app.texts() == ["once"]


async def _taken(at: Desk) -> None:
    async def is_so() -> bool:
        return not at.app.unread

    await at.home.until(is_so, "it to be taken")
    await at.quiet()
