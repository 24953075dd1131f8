"""Looking over the writer's shoulder: when it committed, how much, and when it checkpointed."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import apsw

from holdfast.store.hub import CommittedEvents
from holdfast.store.sqlite.checkpoints import Checkpoints
from holdfast.store.sqlite.committer import SqliteCommitter
from holdfast.store.writer import PendingWrite

FRAME_BYTES = 4_096 + 24
"""A page in the write-ahead log, with its header."""


@dataclass
class ObservedCommits:
    """What happened: seconds of perf_counter, and appends per commit."""

    commits: list[tuple[float, float, int]] = field(default_factory=list)
    checkpoints: list[tuple[float, float]] = field(default_factory=list)
    housekeeping: list[tuple[float, float]] = field(default_factory=list)


@contextmanager
def observe_commits() -> Iterator[ObservedCommits]:
    """Note every commit, checkpoint and chore of all stores in this process, at about a microsecond each."""
    observed = ObservedCommits()
    commit, passive, housekeep = SqliteCommitter.commit, Checkpoints.passive, SqliteCommitter.housekeep

    def observed_commit(
        self: SqliteCommitter, tickets: Sequence[PendingWrite]
    ) -> tuple[Sequence[object], CommittedEvents]:
        start = time.perf_counter()
        answer = commit(self, tickets)
        observed.commits.append((start, time.perf_counter(), sum(ticket.weight for ticket in tickets)))
        return answer

    def observed_passive(self: Checkpoints, db: apsw.Connection) -> None:
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
        patch.object(Checkpoints, "passive", observed_passive),
        patch.object(SqliteCommitter, "housekeep", observed_housekeeping),
    ):
        yield observed


class WalMeter:
    """How many bytes each commit adds to the write-ahead log, from the page count that SQLite reports."""

    def __init__(self) -> None:
        self._pages = 0

    def grown(self, committer: SqliteCommitter) -> int:
        """Bytes since the last call. A log that was started over counts from its start."""
        before, self._pages = self._pages, committer._checkpoints._pages
        return (self._pages - before if self._pages >= before else self._pages) * FRAME_BYTES
