"""Whatever was acknowledged is there after a loss of power, and nothing is there by half."""

import random
import time

import pytest

from tests.crash.writer_history import run_seed
from tests.power.power_loss_run import AckHistory, images, run_recorded_workload, verdict_on

THOROUGH_EVERY = 6
"""Every so many moments the whole store is checked, not just compared with what was acknowledged."""
TORN_MOMENTS = 100
NORMAL_MOMENTS = 25


@pytest.fixture(scope="module")
def seed() -> int:
    return run_seed()


@pytest.fixture(scope="module")
def full(seed: int, tmp_path_factory: pytest.TempPathFactory) -> AckHistory:
    return run_recorded_workload(tmp_path_factory.mktemp("full") / "disk", "full", seed)


@pytest.fixture(scope="module")
def normal(seed: int, tmp_path_factory: pytest.TempPathFactory) -> AckHistory:
    return run_recorded_workload(tmp_path_factory.mktemp("normal") / "disk", "normal", seed)


@pytest.fixture
def report(seed: int, capsys: pytest.CaptureFixture[str]) -> "Report":
    return Report(seed, capsys)


class Report:
    """One line of figures for a test, shown whether or not it passes."""

    def __init__(self, seed: int, capsys: pytest.CaptureFixture[str]) -> None:
        self._seed, self._capsys, self._began = seed, capsys, time.monotonic()

    def __call__(self, what: str, history: AckHistory, **figures: int) -> None:
        summary = " ".join(f"{name}={figure}" for name, figure in figures.items())
        with self._capsys.disabled():
            print(
                f"\npower, {what}: seed={self._seed} acks={len(history.promises)} {summary}"
                f" in {time.monotonic() - self._began:.1f} s"
            )


def test_everything_acknowledged_is_on_disk_at_the_moment_of_its_acknowledgement(
    full: AckHistory, seed: int, report: Report
) -> None:
    moments = full.moments()
    for i, (moment, files) in enumerate(images(full.record, moments, None)):
        verdict = verdict_on(full, files, moment, thorough=i % THOROUGH_EVERY == 0)
        assert verdict.is_clean, f"seed {seed}, step {moment}: {verdict}"
    assert full.checkpoints() > 4 and full.pruned > 0, "this run proves nothing of checkpoints or pruning"
    report("only what was synced", full, moments=len(moments), lost=0, half=0, checkpoints=full.checkpoints())


def test_torn_and_reordered_writes_harm_nothing_that_was_acknowledged(
    full: AckHistory, seed: int, report: Report
) -> None:
    rng = random.Random(seed)
    moments = sorted(rng.sample(range(full.moments()[0], len(full.record) + 1), TORN_MOMENTS))
    for moment, files in images(full.record, moments, rng):
        verdict = verdict_on(full, files, moment)
        assert verdict.is_clean, f"seed {seed}, step {moment}: {verdict}"
    report("torn writes", full, moments=len(moments), lost=0, half=0)


def test_a_store_can_be_opened_after_power_loss_during_creation(
    full: AckHistory, seed: int, report: Report
) -> None:
    rng = random.Random(seed)
    moments = range(full.moments()[0])
    for torn in (None, rng):
        for moment, files in images(full.record, moments, torn):
            verdict = verdict_on(full, files, moment, thorough=False)
            assert verdict.is_clean, f"seed {seed}, step {moment}: {verdict}"
    report("while being made", full, moments=2 * len(moments))


def test_normal_durability_loses_acknowledged_appends_but_leaves_nothing_half(
    normal: AckHistory, seed: int, report: Report
) -> None:
    """It promises less, and this is how the tests above are known to be able to fail."""
    rng = random.Random(seed)
    lost, found = 0, normal.moments()
    moments = sorted(rng.sample(found, min(len(found), NORMAL_MOMENTS)))
    for torn in (None, rng):
        for moment, files in images(normal.record, moments, torn):
            verdict = verdict_on(normal, files, moment)
            lost += len(verdict.lost)
            verdict.lost = []
            assert verdict.is_clean, f"seed {seed}, step {moment}: {verdict}"
    assert lost > 0
    report("normal durability", normal, moments=2 * len(moments), lost=lost, half=0)
