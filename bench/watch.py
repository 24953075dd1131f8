"""Looking over the writer's shoulder: when it committed, how much, and when it checkpointed."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import apsw

from holdfast.store.hub import News
from holdfast.store.sqlite.checkpoints import Checkpoints
from holdfast.store.sqlite.committer import SqliteCommitter
from holdfast.store.writer import Ticket

FRAME_BYTES = 4_096 + 24
"""A page in the write-ahead log, with its header."""


@dataclass
class Watched:
    """What happened: seconds of perf_counter, and appends per commit."""

    commits: list[tuple[float, float, int]] = field(default_factory=list)
    checkpoints: list[tuple[float, float]] = field(default_factory=list)
    chores: list[tuple[float, float]] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[Watched]:
    """Note every commit, checkpoint and chore of all stores in this process, at about a microsecond each."""
    seen = Watched()
    commit, passive, chores = SqliteCommitter.commit, Checkpoints.passive, SqliteCommitter.chores

    def noted_commit(self: SqliteCommitter, tickets: Sequence[Ticket]) -> tuple[Sequence[object], News]:
        start = time.perf_counter()
        answer = commit(self, tickets)
        seen.commits.append((start, time.perf_counter(), sum(ticket.weight for ticket in tickets)))
        return answer

    def noted_passive(self: Checkpoints, db: apsw.Connection) -> None:
        start = time.perf_counter()
        passive(self, db)
        seen.checkpoints.append((start, time.perf_counter()))

    def noted_chores(self: SqliteCommitter, idle: bool) -> bool:
        start = time.perf_counter()
        more = chores(self, idle)
        seen.chores.append((start, time.perf_counter()))
        return more

    with (
        patch.object(SqliteCommitter, "commit", noted_commit),
        patch.object(Checkpoints, "passive", noted_passive),
        patch.object(SqliteCommitter, "chores", noted_chores),
    ):
        yield seen


class WalMeter:
    """How many bytes each commit adds to the write-ahead log, from the page count that SQLite reports."""

    def __init__(self) -> None:
        self._pages = 0

    def grown(self, committer: SqliteCommitter) -> int:
        """Bytes since the last call. A log that was started over counts from its start."""
        before, self._pages = self._pages, committer._checkpoints._pages
        return (self._pages - before if self._pages >= before else self._pages) * FRAME_BYTES
