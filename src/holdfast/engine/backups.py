"""Back up the store while the server runs. A command restores a backup."""

import asyncio
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import HoldfastError
from holdfast.store.maintenance import Maintenance


class BackupInfo(msgspec.Struct, frozen=True):
    """A copy of everything. `restore` is the command that goes back to it, with no server running."""

    name: str
    size_bytes: int
    made_at: Instant
    restore: str


class NoSuchBackup(HoldfastError):
    """There is no backup {name}."""

    code, status = "no_such_backup", 404


class BackupRunning(HoldfastError):
    """A backup is being made already."""

    code, status = "backup_running", 409
    remedy = "Wait until it is done."


class BackupService(Protocol):
    """Backups of the store, in the data folder."""

    async def create(self) -> BackupInfo:
        """Create a backup. Raises BackupRunning, StoreFault."""

    async def list_(self) -> Sequence[BackupInfo]:
        """Return the backups, the newest first."""

    async def find_path(self, name: str) -> Path:
        """Return a backup's file. Raises NoSuchBackup."""


FOLDER = "backups"
_SUFFIX = ".db"


class Backups:
    """Create and list backups, one at a time. Belongs to one event loop."""

    def __init__(self, store: Maintenance, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._is_busy = False

    async def create(self) -> BackupInfo:
        """Copy the whole store. Raises BackupRunning, and StoreFault as the store does."""
        if self._is_busy:
            raise BackupRunning()
        self._is_busy = True
        try:
            folder = self._folder / FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            stem = f"holdfast-{time.strftime('%Y%m%dT%H%M%S')}"
            names = (folder / (f"{stem}-{n}{_SUFFIX}" if n else f"{stem}{_SUFFIX}") for n in count())
            path = next(path for path in names if not path.exists())
            await self._store.backup(path, lambda done, total: None)
        finally:
            self._is_busy = False
        return self._info(path)

    async def list_(self) -> Sequence[BackupInfo]:
        """Return the backups, the newest first, with the copies that a restore or an upgrade kept."""
        backups = await asyncio.to_thread(lambda: [self._info(path) for path in self._files()])
        return sorted(backups, key=lambda backup: (backup.made_at, backup.name), reverse=True)

    async def find_path(self, name: str) -> Path:
        """Return a backup's file. Raises NoSuchBackup."""
        for path in await asyncio.to_thread(lambda: list(self._files())):
            # Compare names, never join them to a path: a name cannot lead out of the folder.
            if path.name == name:
                return path
        raise NoSuchBackup(name=name[:100])

    def _files(self) -> Iterator[Path]:
        folder = self._folder / FOLDER
        if folder.is_dir():
            for path in folder.iterdir():
                if path.suffix == _SUFFIX and stat.S_ISREG(path.lstat().st_mode):
                    yield path

    def _info(self, path: Path) -> BackupInfo:
        stat_result = path.stat()
        command = shlex.join(["holdfast", "restore", str(path), "--data", str(self._folder)])
        return BackupInfo(path.name, stat_result.st_size, round(stat_result.st_mtime * 1000), command)
