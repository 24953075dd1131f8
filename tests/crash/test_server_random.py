"""The real server is killed at any moment, many times over, while people use it: nothing that anyone was
sent is lost, no unsafe tool runs twice, every run comes to its end, and nobody does anything but start it.

The seed decides what is asked for and at what the server is killed; the machine, how far it has come by then.
"""

import time

import pytest

from tests.crash.audit import CrashFigures
from tests.crash.killer import RandomKiller
from tests.crash.load_harness import LoadHarness, run_load
from tests.crash.writer_history import kill_count, run_seed

KILLS_EACH = 40
"""How often one store is bereaved, so that conversations do not grow for ever."""


async def test_a_killed_server_loses_nothing_does_nothing_twice_and_goes_on_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, wanted, began, total = run_seed(), kill_count(), time.monotonic(), CrashFigures()
    while total.kills < wanted:
        kills = min(KILLS_EACH, wanted - total.kills)
        figures = await run_load(seed + total.kills, 1, lambda town, kills=kills: _kill(town, kills))
        told = f"seed {seed}, after {total.kills} kills: {figures}\n" + "\n".join(figures.wrong)
        assert figures.is_clean, told
        total.add(figures)
    assert total.tokens > 20 * total.kills, "too little was said to prove anything"
    with capsys.disabled():
        print(f"\nserver: seed={seed} {total} ({time.monotonic() - began:.1f} s)")


async def _kill(harness: LoadHarness, kills: int) -> None:
    reaper, (server,) = RandomKiller(harness.rng, harness.recorders), harness.servers
    for _ in range(kills):
        await reaper.kill(server)
        await server.wait_killed()
        harness.figures.kills += 1
        await server.start()
        harness.resume_timer.restart(server.ready_at)
        harness.check()
