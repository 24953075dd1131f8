"""Writers are killed at any moment, many times over: all that was acknowledged is there, nothing is half.

The seed decides what the writers do and when they are killed; the machine, how far each has come by then.
"""

import random
import time
from pathlib import Path

import pytest

from tests.crash.past import Past, kills_wanted, seed_of_run
from tests.crash.writers import WriterProcess

ACKS_MAX, DELAY_S_MAX = 300, 0.8


def test_a_killed_writer_has_lost_nothing_and_left_nothing_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, kills, pairs = seed_of_run(), kills_wanted(), 0
    began, chance, past = time.monotonic(), random.Random(seed), Past(tmp_path / "store")
    while past.kills < kills:
        # Hours pass between two lives, so that sweeps find something to do.
        writers = [
            WriterProcess(past.folder, chance.getrandbits(32), 2 * past.kills)
            for _ in range(chance.choice((1, 1, 2)))
        ]
        pairs += len(writers) == 2
        while writers:
            _kill_some_time(writers[0], chance)
            past.bury(writers.pop(0).told)
            living = [writer.told for writer in writers]
            verdict = past.judge(living)
            assert verdict.is_clean, f"seed {seed}, kill {past.kills}: {verdict}"
            robbed = [told for told in living if not past.is_held(told)]
            assert not robbed, f"seed {seed}, kill {past.kills}: a living writer's run was free"
    assert past.acks > 10 * kills, "too little was promised to prove anything"
    assert len(list((past.folder / "processes").iterdir())) <= 2, "the dead leave files behind for ever"
    with capsys.disabled():
        print(
            f"\ncrash: seed={seed} kills={past.kills} acks={past.acks} lost=0 half=0 pairs={pairs}"
            f" in {time.monotonic() - began:.1f} s"
        )


@pytest.mark.parametrize("attempt", range(3))
def test_several_processes_can_make_one_store_at_once(attempt: int, tmp_path: Path) -> None:
    seed = seed_of_run()
    past = Past(tmp_path / "store")
    writers = [WriterProcess(past.folder, seed + attempt + n, 0) for n in range(4)]
    for writer in writers:
        writer.wait_for_acks(5)
        assert writer.told.acks >= 5
    for writer in writers:
        writer.kill()
        past.bury(writer.told)
    verdict = past.judge()
    assert verdict.is_clean, f"seed {seed}: {verdict}"


def _kill_some_time(writer: WriterProcess, chance: random.Random) -> None:
    if chance.random() < 0.7:
        writer.wait_for_acks(chance.randint(1, ACKS_MAX))
    else:
        time.sleep(chance.random() * DELAY_S_MAX)
    writer.kill()
