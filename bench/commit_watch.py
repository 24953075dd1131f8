"""Observe the writer: its commits, their sizes, and its checkpoints."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import apsw

from holdfast.store.hub import CommittedEvents
from holdfast.store.sqlite.checkpoints import Checkpointer
from holdfast.store.sqlite.committer import SqliteCommitter
from holdfast.store.writer import PendingWrite

FRAME_BYTES = 4_096 + 24
"""The size of a page in the write-ahead log, with its header."""


@dataclass
class ObservedCommits:
    """The observed events: times of perf_counter, and appends per commit."""

    commits: list[tuple[float, float, int]] = field(default_factory=list)
    checkpoints: list[tuple[float, float]] = field(default_factory=list)
    housekeeping: list[tuple[float, float]] = field(default_factory=list)


@contextmanager
def observe_commits() -> Iterator[ObservedCommits]:
    """Record the commits, checkpoints and housekeeping of all stores in this process, at about 1 µs each."""
    observed = ObservedCommits()
    commit, passive, housekeep = SqliteCommitter.commit, Checkpointer.passive, SqliteCommitter.housekeep

    def observed_commit(
        self: SqliteCommitter, writes: Sequence[PendingWrite]
    ) -> tuple[Sequence[object], CommittedEvents]:
        start = time.perf_counter()
        answer = commit(self, writes)
        observed.commits.append((start, time.perf_counter(), sum(write.weight for write in writes)))
        return answer

    def observed_passive(self: Checkpointer, db: apsw.Connection) -> None:
        start = time.perf_counter()
        passive(self, db)
        observed.checkpoints.append((start, time.perf_counter()))

    def observed_housekeeping(self: SqliteCommitter, idle: bool) -> bool:
        start = time.perf_counter()
        more = housekeep(self, idle)
        observed.housekeeping.append((start, time.perf_counter()))
        return more

    with (
        patch.object(SqliteCommitter, "commit", observed_commit),
        patch.object(Checkpointer, "passive", observed_passive),
        patch.object(SqliteCommitter, "housekeep", observed_housekeeping),
    ):
        yield observed


class WalMeter:
    """Measure how many bytes each commit adds to the write-ahead log, by SQLite's page count."""

    def __init__(self) -> None:
        self._pages = 0

    def grown(self, committer: SqliteCommitter) -> int:
        """Return the bytes since the last call. A log that was started over counts from its start."""
        before, self._pages = self._pages, committer._checkpoints._pages
        return (self._pages - before if self._pages >= before else self._pages) * FRAME_BYTES
