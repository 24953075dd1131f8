"""The real server is killed at any moment, many times over, while people use it: nothing that anyone was
sent is lost, no unsafe tool runs twice, every run comes to its end, and nobody does anything but start it.

The seed decides what is asked for and at what the server is killed; the machine, how far it has come by then.
"""

import asyncio
import random
import time

import pytest

from tests.crash.actor import acting
from tests.crash.audit import Figures, audit
from tests.crash.onlookers import Crowd, Memory, gathering
from tests.crash.past import kills_wanted, scratch, seed_of_run
from tests.crash.reaper import Reaper, Stopwatch
from tests.crash.script import written_by
from tests.crash.servers import serving

PEOPLE = 5
KILLS_EACH = 40
"""How often one store is bereaved, so that conversations do not grow for ever."""


class Bustle:
    """People who write one, two or three messages, wait for the answers, and write again until it is late."""

    def __init__(self, crowd: Crowd, chance: random.Random) -> None:
        self._crowd = crowd
        self._chance = chance
        self._is_late = False

    def end(self) -> None:
        self._is_late = True

    async def write(self, memory: Memory, name: str) -> None:
        number = 0
        while not self._is_late or not number:
            for _ in range(self._chance.choice((1, 1, 2, 3))):
                await self._crowd.say(memory, written_by(self._chance, f"{name}{number}"))
                number += 1
            await memory.until_all_ended()


async def _rounds(seed: int, kills: int) -> Figures:
    """One store, killed under so many servers."""
    chance, figures = random.Random(seed), Figures()
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url) as server,
            gathering(chance) as crowd,
        ):
            memories = [await crowd.begin(server.address) for _ in range(PEOPLE)]
            crowd.follow(memories[0], server.address)
            for memory in memories[:3]:
                crowd.look(memory, server.address)
            reaper, stopwatch, bustle = Reaper(chance, memories), Stopwatch(memories), Bustle(crowd, chance)
            async with asyncio.TaskGroup() as group:
                for memory, name in zip(memories, "abcde", strict=True):
                    group.create_task(bustle.write(memory, name))
                for _ in range(kills):
                    await reaper.kill(server)
                    await server.bury()
                    figures.kills += 1
                    await server.start()
                    stopwatch.ready(server)
                    crowd.check()
                bustle.end()
            figures.resumed_s = stopwatch.resumed_s
            return await audit(crowd, server, figures)


async def test_a_killed_server_loses_nothing_does_nothing_twice_and_goes_on_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, wanted, began, done = seed_of_run(), kills_wanted(), time.monotonic(), 0
    while done < wanted:
        figures = await _rounds(seed + done, min(KILLS_EACH, wanted - done))
        assert figures.is_clean, f"seed {seed}, after {done} kills: {figures}\n" + "\n".join(figures.wrong)
        assert figures.tokens > 20 * figures.kills, "too little was said to prove anything"
        with capsys.disabled():
            print(f"\nserver: seed={seed} {figures} ({time.monotonic() - began:.1f} s)")
        done += figures.kills
