"""Kill writers at random moments: every acknowledged change is stored, and none in part.

The seed chooses what the writers do and when they are killed; the machine decides how far each has come.
"""

import random
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.writer_history import WriterHistory, kill_count, run_seed
from tests.crash.writers import WriterProcess

ACKS_MAX, DELAY_S_MAX = 300, 0.8
KILLS_EACH = 40
"""How often one store is killed. Comparing all of it after each kill takes longer and longer."""


def test_a_killed_writer_has_lost_nothing_and_left_nothing_half(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, wanted = run_seed(), kill_count()
    began, rng, kills, acks = time.monotonic(), random.Random(seed), 0, 0
    while kills < wanted:
        past = WriterHistory(tmp_path / f"store-{kills}")
        while past.kills < min(KILLS_EACH, wanted - kills):
            with ExitStack() as running:
                # Hours pass between two lives, so that sweeps find something to do.
                writers = [
                    running.enter_context(WriterProcess(past.folder, rng.getrandbits(32), 2 * past.kills))
                    for _ in range(rng.choice((1, 1, 2)))
                ]
                _kill_one_by_one(writers, past, rng, f"seed {seed}, kill {kills} + {past.kills}")
        assert len(list((past.folder / "processes").iterdir())) <= 2, "the dead leave files behind for ever"
        kills, acks = kills + past.kills, acks + past.acks
    assert acks > 10 * kills, "too little was promised to prove anything"
    with capsys.disabled():
        print(
            f"\ncrash: seed={seed} kills={kills} acks={acks} lost=0 half=0"
            f" in {time.monotonic() - began:.1f} s"
        )


def _kill_one_by_one(
    writers: list[WriterProcess], past: WriterHistory, rng: random.Random, when: str
) -> None:
    for i, writer in enumerate(writers):
        if rng.random() < 0.7:
            writer.wait_for_acks(rng.randint(1, ACKS_MAX))
        else:
            time.sleep(rng.random() * DELAY_S_MAX)
        writer.kill()
        past.add_dead(writer.log)
        living = [other.log for other in writers[i + 1 :]]
        verdict = past.check(living)
        assert verdict.is_clean, f"{when}: {verdict}"
        robbed = [alive for alive in living if not past.has_leases(alive)]
        assert not robbed, f"{when}: a living writer's run was free"
