"""One process at a time serves a chat app; another takes over; how each fares can be seen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.channels.ports import ChannelFailure, InboundReceiver
from holdfast.channels.worker import NoSuchChannel
from tests.support.fake_channel import FakeChatApp, FakeChatChannel, channel_harness, make_gateway
from tests.support.in_process_app import running_app, text_step


async def short_sleep(wait_s: float) -> None:
    """Nobody's right to serve runs out while a slow machine stands still, and nobody waits long for it."""
    await asyncio.sleep(min(wait_s, 0.05))


async def test_another_process_takes_over_when_the_one_that_served_is_gone(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    async with (
        running_app(tmp_path / "data") as engine_app,
        channel_harness(engine_app, chat_app, sleep=short_sleep) as harness,
        running_app(tmp_path / "data", started=False) as other,
    ):
        engine_app.model.steps = [text_step("one")]
        notices: list[str] = []
        stand_by = make_gateway(other, chat_app, notices, sleep=short_sleep)
        await stand_by.start()
        chat_app.post_message("1")
        await harness.wait_until_idle()
        assert harness.gateway.states()[0].serving and not stand_by.states()[0].serving
        await harness.gateway.stop(0.0)
        engine_app.model.steps = other.model.steps = [text_step("two")]
        chat_app.post_message("2")
        await harness.wait_for_texts("one", "two")
        await harness.wait_until_idle()
        assert stand_by.states()[0].serving
        await stand_by.stop(1.0)
        assert not notices


async def test_a_message_received_by_one_process_is_handled_by_the_serving_one(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    async with (
        running_app(tmp_path / "data") as engine_app,
        channel_harness(engine_app, chat_app) as harness,
        running_app(tmp_path / "data", started=False) as other,
    ):
        engine_app.model.steps = [text_step("one")]
        beside = make_gateway(other, chat_app, [])
        inbound = chat_app.post_message("1")
        chat_app.unread.clear()
        await beside.receiver_for("parlour")(inbound)
        await harness.wait_for_texts("one")
        await harness.wait_until_idle()


async def test_a_channel_that_fails_to_listen_is_listened_to_again_and_says_why(tmp_path: Path) -> None:
    class Deaf(FakeChatChannel):
        tries = 0

        async def listen(self, receiver: InboundReceiver) -> None:
            self.tries += 1
            if self.tries == 1:
                raise ChannelFailure(channel=self.name, detail="no such bot")
            await super().listen(receiver)

    chat_app = FakeChatApp()
    channel = Deaf(chat_app)
    async with (
        running_app(tmp_path) as engine_app,
        channel_harness(engine_app, chat_app, channel=channel) as harness,
    ):

        async def has_error() -> bool:
            return bool(harness.gateway.states()[0].last_error)

        await engine_app.wait_until(has_error, "a failure")
        assert harness.gateway.states()[0].last_error == "parlour: no such bot."
        engine_app.model.steps = [text_step("one")]
        chat_app.post_message("1")
        await harness.wait_for_texts("one")
        assert harness.gateway.states()[0].last_error == ""


async def test_a_channel_can_be_added_tested_and_removed_while_others_work(tmp_path: Path) -> None:
    first, second = FakeChatApp(), FakeChatApp("other")
    async with running_app(tmp_path) as app, channel_harness(app, first) as harness:
        harness.gateway.add(FakeChatChannel(second))
        assert (await harness.gateway.test("other")).ok
        assert [state.name for state in harness.gateway.states()] == ["parlour", "other"]
        await harness.gateway.remove("other")
        with pytest.raises(NoSuchChannel):
            harness.gateway.receiver_for("other")
        app.model.steps = [text_step("one")]
        first.post_message("1")
        await harness.wait_for_texts("one")


async def test_stopping_waits_for_what_is_being_sent_and_no_longer_than_said(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [text_step("one")]
        chat_app.hold = asyncio.Event()
        chat_app.post_message("1")

        async def is_sending() -> bool:
            rows = await engine_app.store.deliveries("agent:main:parlour:dm:42", 1)
            return bool(rows) and rows[0].state == "sending"

        await engine_app.wait_until(is_sending, "a try")
        stopping = asyncio.create_task(harness.gateway.stop(10.0))
        await asyncio.sleep(0.05)
        chat_app.hold.set()
        await stopping
        (row,) = await engine_app.store.deliveries("agent:main:parlour:dm:42", 1)
        assert row.state == "sent" and chat_app.texts() == ["one"]


async def test_what_is_counted_can_be_read(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one")]
        harness.chat_app.post_message("1")
        await harness.wait_until_idle()
        (state,) = harness.gateway.states()
        assert (state.received, state.delivered["sent"], state.last_error) == (1, 1, "")
        assert state.last_seen_at > 0


async def test_a_failing_chat_is_retried_without_affecting_others(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, channel_harness(app) as harness:
        app.model.steps = [text_step("one"), text_step("two")]
        plan, failures = app.store.plan, 0

        async def fails_at_first(key: str, *rest: Any) -> bool:
            nonlocal failures
            if key.endswith(":42") and failures < 2:
                failures += 1
                raise RuntimeError("cannot plan")
            return await plan(key, *rest)

        app.store.plan = fails_at_first  # type: ignore[method-assign]
        harness.chat_app.post_message("1", chat="42")
        await harness.wait_for_texts("one", chat="42")
        harness.chat_app.post_message("2", chat="43")
        await harness.wait_for_texts("two", chat="43")
        assert (
            failures == 2 and len([line for line in harness.operator_messages if "cannot plan" in line]) == 2
        )
