"""Copies of everything: the port of who makes them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.errors import HoldfastError


class BackupTold(msgspec.Struct, frozen=True):
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


class BackupDesk(Protocol):
    """Copies of everything, in the data folder."""

    async def make(self) -> BackupTold:
        """Raises BackupRunning, StoreFault."""

    async def list_(self) -> Sequence[BackupTold]:
        """The newest first."""

    async def path_of(self, name: str) -> Path:
        """Raises NoSuchBackup."""
