"""The port for maintenance of a store: sweep, check, backup, close; and what each returns."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.store.commit_metrics import CommitMetrics

Progress = Callable[[int, int], None]
"""Called with the finished and the total amount of work."""


class SweepResult(msgspec.Struct, frozen=True):
    """The amount of work that a sweep did.

    `mismatched` counts bodies whose deltas did not add up; the sweep left those alone. `deltas` also counts
    other small rows: events of deleted sessions, and rows of chats and notes.
    """

    deltas: int = 0
    mismatched: int = 0
    sessions: int = 0
    blobs: int = 0
    bytes_freed: int = 0


class BackupRestoreResult(msgspec.Struct, frozen=True):
    """The paths of what a restore replaced and kept; None if there was nothing.

    `left_out` lists the files of the backup that the restore did not bring back.
    """

    store: Path | None
    workspaces: Path | None
    left_out: tuple[str, ...]


class StoreFinding(msgspec.Struct, frozen=True):
    """A problem that doctor found, and whether doctor repaired it."""

    where: str
    what: str
    repaired: bool = False


class Maintenance(Protocol):
    """Maintenance of the store. All of it runs in slices, beside normal work."""

    @property
    def pre_migration_copy(self) -> Path | None:
        """The path of the copy from before the migration, if opening the store migrated it."""

    @property
    def commit_metrics(self) -> CommitMetrics:
        """Commit durations of this process so far."""

    async def sweep(self) -> SweepResult:
        """Prune settled deltas, purge deleted sessions, delete unused blobs, give space back."""

    async def check(self, repair: bool, progress: Progress) -> Sequence[StoreFinding]:
        """Check that the file is whole and that projections equal the fold; with `repair`, rebuild them."""

    async def backup(self, path: Path, progress: Progress) -> None: ...

    async def close(self) -> None:
        """Store what was submitted, then release everything."""
