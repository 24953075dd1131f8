"""Kill the real server at random moments while it commits conversations to memory.

No pending commit is lost, a provider with keys holds everything once, and one without keys is never called
again unless a person says so. The seed chooses actions and kills; the machine decides how far it has come.
"""

import time

import pytest

from tests.crash.memory_crash_harness import MemoryCrashFigures, run_memory_crashes
from tests.crash.writer_history import kill_count, run_seed

KILLS_EACH = 40
"""How often one store is killed, so that conversations do not grow without limit."""


@pytest.mark.parametrize("takes_key", [True, False], ids=["knows_keys", "knows_no_keys"])
async def test_a_killed_server_forgets_nothing_that_it_owes_to_memory(
    takes_key: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, wanted, began, total = run_seed(), kill_count(), time.monotonic(), MemoryCrashFigures()
    while total.kills < wanted:
        kills = min(KILLS_EACH, wanted - total.kills)
        figures = await run_memory_crashes(seed + total.kills, kills, takes_key)
        summary = f"seed {seed}, after {total.kills} kills: {figures}\n" + "\n".join(figures.wrong)
        assert not figures.wrong, summary
        total.add(figures)
    assert total.turns > total.kills and total.commits > total.kills / 2, (
        "too little was said to prove anything"
    )
    with capsys.disabled():
        print(f"\nmemory: seed={seed} takes_key={takes_key} {total} ({time.monotonic() - began:.1f} s)")
