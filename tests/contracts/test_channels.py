"""G: chat apps. A delivery is recorded before it is tried; a repeated update makes one turn."""

import asyncio
from pathlib import Path

import pytest

from holdfast.channels.pairing import Pairing, Sender
from holdfast.domain.chats import Chat
from holdfast.domain.clock import SystemClock
from tests.support.crashing_proxy import CHANNEL_STEPS, CrashingProxy, CrashPoint
from tests.support.fake_channel import (
    ADA,
    ChannelHarness,
    FakeChatApp,
    FakeChatChannel,
    channel_harness,
    make_gateway,
)
from tests.support.in_process_app import running_app, text_step

KEY = Chat("parlour", "dm", "42").route


async def test_a_delivery_is_recorded_before_it_is_tried_and_receipted_after(tmp_path: Path) -> None:
    """G9"""
    chat_app = FakeChatApp()
    chat_app.hold = asyncio.Event()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [text_step("the answer")]
        chat_app.post_message("hello")

        async def is_tried() -> bool:
            rows = await engine_app.store.deliveries(KEY, 1)
            return bool(rows) and rows[0].state == "sending"

        await engine_app.wait_until(is_tried, "a try")
        (row,) = await engine_app.store.deliveries(KEY, 1)
        assert (row.body.text, row.attempts, row.platform_id) == ("the answer", 1, "")
        assert row.process_id == engine_app.store.own_process and not chat_app.texts()
        chat_app.hold.set()
        await harness.wait_until_idle()
        (row,) = await engine_app.store.deliveries(KEY, 1)
        assert (row.state, row.platform_id) == ("sent", chat_app.chats["42"][0].id)


@pytest.mark.parametrize("dedupes", [True, False])
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_crash_before_the_receipt_is_retried_or_in_doubt(
    tmp_path: Path, dedupes: bool, arrives: bool
) -> None:
    """G9"""
    chat_app = FakeChatApp(dedupes=dedupes)
    fate = CrashPoint(1, is_after=arrives)
    async with running_app(tmp_path) as engine_app:
        pairing = Pairing(engine_app.store, SystemClock(), lambda bits: 1)
        await pairing.allow(Sender("parlour", ADA, "Ada", 0))
        engine_app.model.steps = [text_step("the answer")]
        channel = CrashingProxy(FakeChatChannel(chat_app), fate, CHANNEL_STEPS)
        doomed = make_gateway(engine_app, chat_app, [], channel=channel)
        await doomed.start()
        chat_app.post_message("hello")
        async with asyncio.timeout(30):
            await fate.has_crashed.wait()
        fate.release()
        await doomed.stop(0.0)
        assert chat_app.texts() == (["the answer"] if arrives else [])
        async with channel_harness(engine_app, chat_app) as harness:
            await harness.wait_until_idle()
            events = await engine_app.event_kinds(await harness.session_id())
        again = "the answer" if dedupes else "(again) the answer"
        first = ["the answer"] if arrives and not dedupes else []
        assert chat_app.texts() == [*first, again]
        assert events.count("delivery_in_doubt") == (0 if dedupes else 1)


async def test_an_update_that_comes_twice_makes_one_turn_also_after_a_crash(tmp_path: Path) -> None:
    """G9"""
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app:
        engine_app.model.steps = [text_step("once")]
        async with channel_harness(engine_app, chat_app) as harness:
            inbound = chat_app.post_message("hello")
            chat_app.deliver_update(inbound)
            await harness.wait_until_idle()
        chat_app.deliver_update(inbound)
        async with channel_harness(engine_app, chat_app) as harness:
            await _taken(harness)
            assert (await engine_app.store.session(await harness.session_id())).last_turn == 1
            assert chat_app.texts() == ["once"]


async def _taken(harness: ChannelHarness) -> None:
    async def is_so() -> bool:
        return not harness.chat_app.unread

    await harness.engine_app.wait_until(is_so, "it to be taken")
    await harness.wait_until_idle()
