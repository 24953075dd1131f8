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
TAKEN_BACK = "\n\n*Removed.*"
STORY = ("hello", "/new", "more", "/undo")


def mortal_desk(engine_app: AppHarness, chat_app: FakeChatApp, fate: CrashPoint) -> ChannelHarness:
    told: list[str] = []
    gateway = make_gateway(
        engine_app, chat_app, told,
        store=CrashingProxy(engine_app.store, fate, STORE_STEPS),
        engine=CrashingProxy(engine_app.engine, fate, ENGINE_STEPS),
        channel=CrashingProxy(FakeChatChannel(chat_app), fate, CHANNEL_STEPS),
    )  # fmt: skip
    return ChannelHarness(engine_app, chat_app, gateway, told)


async def bury(harness: ChannelHarness, fate: CrashPoint) -> None:
    fate.release()
    await harness.gateway.stop(0.0)


async def play(
    engine_app: AppHarness, chat_app: FakeChatApp, story: Sequence[str], fates: Sequence[CrashPoint]
) -> list[str]:
    """Everything of `story` is said in turn; each time that a gateway dies, another is begun."""
    await Pairing(engine_app.store, SystemClock(), lambda bits: 1).allow(Sender(chat_app.name, ADA, "Ada", 0))
    left = [*fates, CrashPoint(NEVER, False)]
    fate = left.pop(0)
    at = mortal_desk(engine_app, chat_app, fate)
    await at.gateway.start()
    for n, text in enumerate(story):
        engine_app.model.steps = [text_step(f"answer {n}")]
        inbound = chat_app.post_message(text)
        while True:
            quiet, over = (
                asyncio.create_task(at.wait_until_idle()),
                asyncio.create_task(fate.has_crashed.wait()),
            )
            await asyncio.wait({quiet, over}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if quiet.done() and not fate.has_crashed.is_set():
                quiet.result()
                break
            quiet.cancel()
            await asyncio.gather(quiet, over, return_exceptions=True)
            await bury(at, fate)
            if n % 2:
                chat_app.deliver_update(inbound)  # The app may well tell it again.
            fate = left.pop(0)
            at = mortal_desk(engine_app, chat_app, fate)
            await at.gateway.start()
    await bury(at, fate)
    assert not at.operator_messages, at.operator_messages
    return fate.steps


async def turns(engine_app: AppHarness, chat_app: FakeChatApp) -> list[str]:
    """Every message that was ever taken up, of all conversations of the chat, in order."""
    (route,) = await engine_app.store.routes(chat_app.name)
    said: list[str] = []
    for session_id in route.sessions:
        for event in await engine_app.store.read(session_id, 0, 1_000):
            fact = event.fact
            if isinstance(fact, f.TurnAccepted):
                said.append(message_text(fact.parts))
    return said


def once(texts: list[str]) -> list[str]:
    """What is shown, without what was sent again and says so, and without notices: those may be let be.

    Of several copies one is known, and says that it was taken back.
    """
    shown = [text for text in texts if not text.startswith("*")]
    plain = [text.removeprefix("(again) ").removesuffix(TAKEN_BACK) for text in shown]
    return [text for n, text in enumerate(plain) if n == 0 or plain[n - 1] != text]


@pytest.mark.parametrize("dedupes", [True, False])
@pytest.mark.parametrize("is_after", [True, False])
async def test_a_crash_at_each_step_loses_and_repeats_nothing(
    tmp_path: Path, dedupes: bool, is_after: bool
) -> None:
    async with running_app(tmp_path) as engine_app:
        whole = FakeChatApp("whole", dedupes)
        steps = await play(engine_app, whole, STORY, [])
        expected = whole.texts()
        assert expected == [
            "answer 0",
            "A new conversation. The old one is in /sessions.",
            f"answer 2{TAKEN_BACK}",
            "*Removed.*",
        ]
        # Before a step is mostly after the one before, so one of the four looks at all of them.
        for at in range(1, len(steps) + 1, 1 if dedupes and is_after else 3):
            chat_app = FakeChatApp(f"app{at}", dedupes)
            before = (await engine_app.store.totals()).sessions
            await play(engine_app, chat_app, STORY, [CrashPoint(at, is_after)])
            told = f"death {'after' if is_after else 'before'} step {at}, {steps[at - 1]}: {chat_app.texts()}"
            assert await turns(engine_app, chat_app) == ["hello", "more"], told
            assert (await engine_app.store.totals()).sessions == before + 2, told
            assert (
                (chat_app.texts() == expected) if dedupes else (once(chat_app.texts()) == once(expected))
            ), told


DEATHS = st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4)
STORIES = st.lists(
    st.sampled_from(
        ["hello", "more", "/new", "/undo", "/retry", "/title x", "/status", "/stop", "/sessions"]
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(STORIES, DEATHS)
def test_any_sequence_with_crashes_ends_as_without_them(
    story: list[str], deaths: list[tuple[int, bool]]
) -> None:
    async def tell(deaths: list[tuple[int, bool]]) -> tuple[list[str], list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            async with running_app(Path(folder)) as engine_app:
                chat_app = FakeChatApp(dedupes=True)
                await play(engine_app, chat_app, story, [CrashPoint(at, is_after) for at, is_after in deaths])
                return chat_app.texts(), await turns(engine_app, chat_app)

    assert asyncio.run(tell(deaths)) == asyncio.run(tell([]))
