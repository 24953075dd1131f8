"""Kill the real server at random moments while people use it.

Nothing that a client received is lost, no unsafe tool runs twice, every run ends, and a restart is all it
takes. The seed chooses requests and kills; the machine decides how far the server has come by then.
"""

import time

import pytest

from tests.crash.audit import CrashFigures
from tests.crash.killer import RandomKiller
from tests.crash.load_harness import LoadHarness, run_load
from tests.crash.writer_history import kill_count, run_seed

KILLS_EACH = 40
"""How often one store is killed, so that conversations do not grow without limit."""


async def test_a_killed_server_loses_nothing_does_nothing_twice_and_goes_on_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed, wanted, began, total = run_seed(), kill_count(), time.monotonic(), CrashFigures()
    while total.kills < wanted:
        kills = min(KILLS_EACH, wanted - total.kills)
        figures = await run_load(seed + total.kills, 1, lambda town, kills=kills: _kill(town, kills))
        summary = f"seed {seed}, after {total.kills} kills: {figures}\n" + "\n".join(figures.wrong)
        assert figures.is_clean, summary
        total.add(figures)
    assert total.tokens > 20 * total.kills, "too little was said to prove anything"
    with capsys.disabled():
        print(f"\nserver: seed={seed} {total} ({time.monotonic() - began:.1f} s)")


async def _kill(harness: LoadHarness, kills: int) -> None:
    killer, (server,) = RandomKiller(harness.rng, harness.recorders), harness.servers
    for _ in range(kills):
        await killer.kill(server)
        await server.wait_killed()
        harness.figures.kills += 1
        await server.start()
        harness.resume_timer.restart(server.ready_at)
        harness.check()
