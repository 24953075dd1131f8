"""The real server is killed at any moment, many times over, while people use it: nothing that anyone was
sent is lost, no unsafe tool runs twice, every run comes to its end, and nobody does anything but start it.

The seed decides what is asked for and at what the server is killed; the machine, how far it has come by then.
"""

import time

import pytest

from tests.crash.audit import Figures
from tests.crash.killer import Reaper
from tests.crash.load_harness import Bustle, bustle
from tests.crash.writer_history import kills_wanted, seed_of_run

KILLS_EACH = 40
"""How often one store is bereaved, so that conversations do not grow for ever."""


async def test_a_killed_server_loses_nothing_does_nothing_twice_and_goes_on_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, wanted, began, total = seed_of_run(), kills_wanted(), time.monotonic(), Figures()
    while total.kills < wanted:
        kills = min(KILLS_EACH, wanted - total.kills)
        figures = await bustle(seed + total.kills, 1, lambda town, kills=kills: _kill(town, kills))
        told = f"seed {seed}, after {total.kills} kills: {figures}\n" + "\n".join(figures.wrong)
        assert figures.is_clean, told
        total.add(figures)
    assert total.tokens > 20 * total.kills, "too little was said to prove anything"
    with capsys.disabled():
        print(f"\nserver: seed={seed} {total} ({time.monotonic() - began:.1f} s)")


async def _kill(town: Bustle, kills: int) -> None:
    reaper, (server,) = Reaper(town.chance, town.memories), town.servers
    for _ in range(kills):
        await reaper.strike(server)
        await server.bury()
        town.figures.kills += 1
        await server.start()
        town.stopwatch.restart(server.ready_at)
        town.check()
