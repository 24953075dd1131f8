"""A writer dies inside one chosen call to its files: before it, in the middle of a write, or after it."""

import random
import time
from collections.abc import Sequence

import pytest

from tests.crash.writer_history import WriterHistory, kill_count, run_seed, temporary_store_folder
from tests.crash.writer_process import CROWD
from tests.crash.writers import CrashingWriters

CREATION_CALLS = 170
"""A few more than it takes to make a store."""


@pytest.mark.parametrize(
    ("point", "calls"),
    [("commit", 120), ("checkpoint", 60), ("indexing", 14), ("sweep", 14), ("backup", 40), ("close", 18)],
)
def test_death_at_a_named_point_leaves_a_whole_store(
    point: str, calls: int, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = run_seed()
    count = min(calls, max(10, kill_count() // 4))
    numbers = sorted(random.Random(f"{seed}.{point}").sample(range(1, calls + 1), count))
    _crash_and_check(seed, point, numbers, capsys)


def test_a_store_that_was_being_made_can_be_opened_whenever_its_maker_died(
    capsys: pytest.CaptureFixture[str],
) -> None:
    seed = run_seed()
    # All of them in the long run; each second one otherwise.
    calls = range(1 + seed % 2, CREATION_CALLS + 1, 1 if kill_count() > 100 else 2)
    _crash_and_check(seed, "creation", calls, capsys)


def test_several_processes_can_make_one_store_at_once() -> None:
    crowds = range(1, 16)
    with (
        temporary_store_folder() as folder,
        CrashingWriters(folder / "crowd", 0, 0, "crowd", *crowds) as writers,
    ):
        writers.wait()
        for number in crowds:
            report = writers.by_number[number]
            assert report.exit == 0, f"crowd {number}: exit {report.exit}\n{writers.errors}"
            past = WriterHistory(folder / "crowd" / str(number))
            past.add_dead(report)
            verdict = past.check()
            assert report.acks == CROWD and verdict.is_clean, f"crowd {number}: {verdict}"


def _crash_and_check(
    seed: int, point: str, numbers: Sequence[int], capsys: pytest.CaptureFixture[str]
) -> None:
    began, deaths, acks = time.monotonic(), 0, 0
    with temporary_store_folder() as folder:
        with CrashingWriters(folder / point, seed, 0, point, *numbers) as writers:
            writers.wait()
        for number in numbers:
            report = writers.by_number[number]
            assert report.exit in (-9, 0), (
                f"seed {seed}, {point} {number}: exit {report.exit}\n{writers.errors}"
            )
            past = WriterHistory(folder / point / str(number))
            past.add_dead(report)
            verdict = past.check()
            assert verdict.is_clean, f"seed {seed}, {point} {number}: {verdict}"
            deaths += report.exit == -9
            acks += report.acks
    assert deaths > len(numbers) // 3, "hardly any call was reached: the numbers are too high"
    with capsys.disabled():
        print(
            f"\ncrash in {point}: seed={seed} kills={deaths} of {len(numbers)} acks={acks} lost=0 half=0"
            f" in {time.monotonic() - began:.1f} s"
        )
