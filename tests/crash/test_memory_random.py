"""The real server is killed at any moment, many times over, while memory is told what people said: nothing
that is owed is forgotten, a memory that knows a key again has everything once, and one that does not is never
told twice unless somebody says so.

The seed decides what is done and at what the server is killed; the machine, how far it has come by then.
"""

import time

import pytest

from tests.crash.memory_crash_harness import MemoryCrashFigures, run_memory_crashes
from tests.crash.writer_history import kill_count, run_seed

KILLS_EACH = 40
"""How often one store is bereaved, so that conversations do not grow for ever."""


@pytest.mark.parametrize("takes_key", [True, False], ids=["knows_keys", "knows_no_keys"])
async def test_a_killed_server_forgets_nothing_that_it_owes_to_memory(
    takes_key: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, wanted, began, total = run_seed(), kill_count(), time.monotonic(), MemoryCrashFigures()
    while total.kills < wanted:
        kills = min(KILLS_EACH, wanted - total.kills)
        figures = await run_memory_crashes(seed + total.kills, kills, takes_key)
        told = f"seed {seed}, after {total.kills} kills: {figures}\n" + "\n".join(figures.wrong)
        assert not figures.wrong, told
        total.add(figures)
    assert total.turns > total.kills and total.commits > total.kills / 2, (
        "too little was said to prove anything"
    )
    with capsys.disabled():
        print(f"\nmemory: seed={seed} takes_key={takes_key} {total} ({time.monotonic() - began:.1f} s)")
