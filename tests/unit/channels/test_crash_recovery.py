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
from holdfast.domain.events.parts import text_of
from tests.support.crashing_proxy import CHANNEL_STEPS, ENGINE_STEPS, STORE_STEPS, Fate, Mortal
from tests.support.fake_channel import ADA, Desk, Parlour, ParlourChannel, gateway_of
from tests.support.in_process_app import House, house, says

NEVER = 10**9
TAKEN_BACK = "\n\n*Removed.*"
STORY = ("hello", "/new", "more", "/undo")


def mortal_desk(home: House, app: Parlour, fate: Fate) -> Desk:
    told: list[str] = []
    gateway = gateway_of(
        home, app, told,
        store=Mortal(home.store, fate, STORE_STEPS),
        engine=Mortal(home.engine, fate, ENGINE_STEPS),
        channel=Mortal(ParlourChannel(app), fate, CHANNEL_STEPS),
    )  # fmt: skip
    return Desk(home, app, gateway, told)


async def bury(at: Desk, fate: Fate) -> None:
    fate.bury()
    await at.gateway.stop(0.0)


async def play(home: House, app: Parlour, story: Sequence[str], fates: Sequence[Fate]) -> list[str]:
    """Everything of `story` is said in turn; each time that a gateway dies, another is begun."""
    await Pairing(home.store, SystemClock(), lambda bits: 1).allow(Sender(app.name, ADA, "Ada", 0))
    left = [*fates, Fate(NEVER, False)]
    fate = left.pop(0)
    at = mortal_desk(home, app, fate)
    await at.gateway.start()
    for n, text in enumerate(story):
        home.model.steps = [says(f"answer {n}")]
        inbound = app.say(text)
        while True:
            quiet, over = asyncio.create_task(at.quiet()), asyncio.create_task(fate.is_over.wait())
            await asyncio.wait({quiet, over}, return_when=asyncio.FIRST_COMPLETED)
            over.cancel()
            if quiet.done() and not fate.is_over.is_set():
                quiet.result()
                break
            quiet.cancel()
            await asyncio.gather(quiet, over, return_exceptions=True)
            await bury(at, fate)
            if n % 2:
                app.tell(inbound)  # The app may well tell it again.
            fate = left.pop(0)
            at = mortal_desk(home, app, fate)
            await at.gateway.start()
    await bury(at, fate)
    assert not at.told, at.told
    return fate.steps


async def turns(home: House, app: Parlour) -> list[str]:
    """Every message that was ever taken up, of all conversations of the chat, in order."""
    (route,) = await home.store.routes(app.name)
    said: list[str] = []
    for session_id in route.sessions:
        for event in await home.store.read(session_id, 0, 1_000):
            fact = event.fact
            if isinstance(fact, f.TurnAccepted):
                said.append(text_of(fact.parts))
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
async def test_death_at_each_step_loses_nothing_and_does_nothing_twice(
    tmp_path: Path, dedupes: bool, is_after: bool
) -> None:
    async with house(tmp_path) as home:
        whole = Parlour("whole", dedupes)
        steps = await play(home, whole, STORY, [])
        expected = whole.texts()
        assert expected == [
            "answer 0",
            "A new conversation. The old one is in /sessions.",
            f"answer 2{TAKEN_BACK}",
            "*Removed.*",
        ]
        # Before a step is mostly after the one before, so one of the four looks at all of them.
        for at in range(1, len(steps) + 1, 1 if dedupes and is_after else 3):
            app = Parlour(f"app{at}", dedupes)
            before = (await home.store.totals()).sessions
            await play(home, app, STORY, [Fate(at, is_after)])
            told = f"death {'after' if is_after else 'before'} step {at}, {steps[at - 1]}: {app.texts()}"
            assert await turns(home, app) == ["hello", "more"], told
            assert (await home.store.totals()).sessions == before + 2, told
            assert (app.texts() == expected) if dedupes else (once(app.texts()) == once(expected)), told


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
def test_any_story_with_any_deaths_ends_as_it_does_without(
    story: list[str], deaths: list[tuple[int, bool]]
) -> None:
    async def tell(deaths: list[tuple[int, bool]]) -> tuple[list[str], list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            async with house(Path(folder)) as home:
                app = Parlour(dedupes=True)
                await play(home, app, story, [Fate(at, is_after) for at, is_after in deaths])
                return app.texts(), await turns(home, app)

    assert asyncio.run(tell(deaths)) == asyncio.run(tell([]))
