"""The harness of the benchmarks: folders, scale, and statistics of samples."""

import gc
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console


@dataclass(frozen=True)
class Scale:
    """The amount of everything. `quick` is for trying a change, `full` for results."""

    appends: int
    """Repetitions of a single append, per mode."""
    rounds: int
    """Repetitions of each load, close together in time."""
    load_s: float
    raw_s: float
    crowd_sessions: int
    long_messages: int
    flat_appends: int
    reads: int
    size_turns: int
    rewrites: tuple[int, ...]


QUICK = Scale(
    appends=300, rounds=1, load_s=3.0, raw_s=1.5, crowd_sessions=2_000, long_messages=4_000,
    flat_appends=150, reads=20, size_turns=160, rewrites=(10, 1_000, 4_000),
)  # fmt: skip
FULL = Scale(
    appends=1_000, rounds=3, load_s=5.0, raw_s=2.0, crowd_sessions=100_000, long_messages=100_000,
    flat_appends=1_000, reads=100, size_turns=1_600, rewrites=(10, 1_000, 10_000, 100_000),
)  # fmt: skip


class BenchHarness:
    """Folders and settings for every measurement. `cache` outlives a run; folders from `folder()` do not."""

    def __init__(self, cache: Path, scale: Scale, console: Console) -> None:
        self.cache = cache
        self.scale = scale
        self.console = console

    @contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        """Yield an empty folder on the measured disk."""
        self.cache.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.cache))
        try:
            yield path
        finally:
            shutil.rmtree(path)

    def print_progress(self, text: str) -> None:
        self.console.print(f"[dim]{text}[/dim]")


def settle_disk() -> None:
    """Sync earlier writes, so that the next measurement does not include them."""
    gc.collect()
    os.sync()
    time.sleep(0.2)


def percentile(samples: Iterable[float], percent: float) -> float:
    """Return the nearest-rank percentile; of few samples a high one is simply the worst."""
    ordered = sorted(samples)
    assert ordered, "a percentile of nothing"
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


@dataclass(frozen=True)
class Spread:
    """Samples in milliseconds, reduced to three figures."""

    p50: float
    p99: float
    worst: float
    count: int

    def __str__(self) -> str:
        return f"p50 {self.p50:.3f}, p99 {self.p99:.3f} ms"


def spread(samples_ms: Sequence[float]) -> Spread:
    return Spread(percentile(samples_ms, 50), percentile(samples_ms, 99), max(samples_ms), len(samples_ms))


def median_spread(spreads: Sequence[Spread]) -> Spread:
    """Return the median of each figure over the rounds, the worst of the worst, and the sum of the counts."""
    return Spread(
        median(each.p50 for each in spreads),
        median(each.p99 for each in spreads),
        max(each.worst for each in spreads),
        sum(each.count for each in spreads),
    )
