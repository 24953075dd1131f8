"""The gateway dies at every step of receiving and delivering, and another goes on over the same store.

No message is lost, none is answered twice, none is shown twice where the app can tell.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.channels.pairing import Pairing, Sender
from holdfast.domain.clock import SystemClock
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import message_text
from tests.support.crashing_proxy import CHANNEL_STEPS, ENGINE_STEPS, STORE_STEPS, CrashingProxy, CrashPoint
from tests.support.fake_channel import ADA, ChannelHarness, FakeChatApp, FakeChatChannel, make_gateway
from tests.support.in_process_app import AppHarness, running_app, text_step

NEVER = 10**9
RETRACTED_SUFFIX = "\n\n*Removed.*"
STORY = ("hello", "/new", "more", "/undo")


def crashing_harness(
    engine_app: AppHarness, chat_app: FakeChatApp, crash_point: CrashPoint
) -> ChannelHarness:
    operator_messages: list[str] = []
    gateway = make_gateway(
        engine_app, chat_app, operator_messages,
        store=CrashingProxy(engine_app.store, crash_point, STORE_STEPS),
        engine=CrashingProxy(engine_app.engine, crash_point, ENGINE_STEPS),
        channel=CrashingProxy(FakeChatChannel(chat_app), crash_point, CHANNEL_STEPS),
    )  # fmt: skip
    return ChannelHarness(engine_app, chat_app, gateway, operator_messages)


async def release_and_stop(harness: ChannelHarness, crash_point: CrashPoint) -> None:
    crash_point.release()
    await harness.gateway.stop(0.0)


async def run_scenario(
    engine_app: AppHarness, chat_app: FakeChatApp, story: Sequence[str], crash_points: Sequence[CrashPoint]
) -> list[str]:
    """Everything of `story` is said in turn; each time that a gateway dies, another is begun."""
    await Pairing(engine_app.store, SystemClock(), lambda bits: 1).allow(Sender(chat_app.name, ADA, "Ada", 0))
    left = [*crash_points, CrashPoint(NEVER, False)]
    crash_point = left.pop(0)
    at = crashing_harness(engine_app, chat_app, crash_point)
    await at.gateway.start()
    for n, text in enumerate(story):
        engine_app.model.steps = [text_step(f"answer {n}")]
        inbound = chat_app.post_message(text)
        while True:
            quiet, over = (
                asyncio.create_task(at.wait_until_idle()),
                asyncio.create_task(crash_point.has_crashed.wait()),
            )
            await asyncio.wait({quiet, over}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if quiet.done() and not crash_point.has_crashed.is_set():
                quiet.result()
                break
            quiet.cancel()
            await asyncio.gather(quiet, over, return_exceptions=True)
            await release_and_stop(at, crash_point)
            if n % 2:
                chat_app.deliver_update(inbound)  # The app may well tell it again.
            crash_point = left.pop(0)
            at = crashing_harness(engine_app, chat_app, crash_point)
            await at.gateway.start()
    await release_and_stop(at, crash_point)
    assert not at.operator_messages, at.operator_messages
    return crash_point.steps


async def user_texts(engine_app: AppHarness, chat_app: FakeChatApp) -> list[str]:
    """Every message that was ever taken up, of all conversations of the chat, in order."""
    (route,) = await engine_app.store.routes(chat_app.name)
    said: list[str] = []
    for session_id in route.sessions:
        for event in await engine_app.store.read(session_id, 0, 1_000):
            fact = event.fact
            if isinstance(fact, f.TurnAccepted):
                said.append(message_text(fact.parts))
    return said


def without_duplicates(texts: list[str]) -> list[str]:
    """What is shown, without what was sent again and says so, and without notices: those may be let be.

    Of several copies one is known, and says that it was taken back.
    """
    shown = [text for text in texts if not text.startswith("*")]
    plain = [text.removeprefix("(again) ").removesuffix(RETRACTED_SUFFIX) for text in shown]
    return [text for n, text in enumerate(plain) if n == 0 or plain[n - 1] != text]


@pytest.mark.parametrize("dedupes", [True, False])
@pytest.mark.parametrize("is_after", [True, False])
async def test_a_crash_at_each_step_loses_and_repeats_nothing(
    tmp_path: Path, dedupes: bool, is_after: bool
) -> None:
    async with running_app(tmp_path) as engine_app:
        whole = FakeChatApp("whole", dedupes)
        steps = await run_scenario(engine_app, whole, STORY, [])
        expected = whole.texts()
        assert expected == [
            "answer 0",
            "A new conversation. The old one is in /sessions.",
            f"answer 2{RETRACTED_SUFFIX}",
            "*Removed.*",
        ]
        # Before a step is mostly after the one before, so one of the four looks at all of them.
        for at in range(1, len(steps) + 1, 1 if dedupes and is_after else 3):
            chat_app = FakeChatApp(f"app{at}", dedupes)
            before = (await engine_app.store.totals()).sessions
            await run_scenario(engine_app, chat_app, STORY, [CrashPoint(at, is_after)])
            detail = (
                f"death {'after' if is_after else 'before'} step {at}, {steps[at - 1]}: {chat_app.texts()}"
            )
            assert await user_texts(engine_app, chat_app) == ["hello", "more"], detail
            assert (await engine_app.store.totals()).sessions == before + 2, detail
            assert (
                (chat_app.texts() == expected)
                if dedupes
                else (without_duplicates(chat_app.texts()) == without_duplicates(expected))
            ), detail


CRASH_POINTS = st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4)
STORIES = st.lists(
    st.sampled_from(
        ["hello", "more", "/new", "/undo", "/retry", "/title x", "/status", "/stop", "/sessions"]
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(STORIES, CRASH_POINTS)
def test_any_sequence_with_crashes_ends_as_without_them(
    story: list[str], deaths: list[tuple[int, bool]]
) -> None:
    async def tell(deaths: list[tuple[int, bool]]) -> tuple[list[str], list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            async with running_app(Path(folder)) as engine_app:
                chat_app = FakeChatApp(dedupes=True)
                await run_scenario(
                    engine_app, chat_app, story, [CrashPoint(at, is_after) for at, is_after in deaths]
                )
                return chat_app.texts(), await user_texts(engine_app, chat_app)

    assert asyncio.run(tell(deaths)) == asyncio.run(tell([]))
