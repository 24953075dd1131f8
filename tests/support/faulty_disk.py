"""Disks that fail on demand: a VFS over the real one, and small file systems where root may mount one."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

_COUNT = itertools.count()


class FaultyDisk:
    """Count calls on files, and fail those that a test chose."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        """Each call with the file's ending: ("sync", "-wal")."""
        self._broken: tuple[str, str, type[apsw.Error], int] | None = None
        self._skip = 0
        self._left = 0

    def inject_fault(
        self,
        call: str,
        ending: str,
        error: type[apsw.Error],
        code: int = 0,
        skip: int = 0,
        times: int = 10**9,
    ) -> None:
        """Fail `times` calls of a kind, after `skip` more of them."""
        self._skip, self._left = skip, times
        self._broken = (call, ending, error, code)

    def clear_faults(self) -> None:
        self._broken = None

    @property
    def is_broken(self) -> bool:
        return self._broken is not None and self._left > 0

    def check_call(self, call: str, path: str) -> None:
        ending = "-wal" if path.endswith("-wal") else ".db" if path.endswith(".db") else "other"
        self.calls.append((call, ending))
        if self._broken is None or self._broken[:2] != (call, ending):
            return
        if self._skip > 0:
            self._skip -= 1
            return
        if self._left > 0:
            self._left -= 1
            error = self._broken[2](f"the test broke {call} of {ending}")
            if self._broken[3]:
                error.extendedresult = self._broken[3]
            raise error


class FaultyVFS(apsw.VFS):
    """SQLite's access to files, through `disk`."""

    def __init__(self, disk: FaultyDisk) -> None:
        self.name = f"faulty-{next(_COUNT)}"
        self._disk = disk
        self._base = apsw.vfs_names()[0]
        super().__init__(self.name, self._base)

    def xOpen(self, name: "str | apsw.URIFilename | None", flags: list[int]) -> apsw.VFSFile:
        return FaultyFile(self._base, self._disk, name, flags)


class FaultyFile(apsw.VFSFile):
    def __init__(
        self, base: str, disk: FaultyDisk, name: "str | apsw.URIFilename | None", flags: list[int]
    ) -> None:
        self._disk = disk
        self._path = (name.filename() if isinstance(name, apsw.URIFilename) else name) or ""
        disk.check_call("open", self._path)
        super().__init__(base, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._disk.check_call("read", self._path)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        self._disk.check_call("write", self._path)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.check_call("sync", self._path)
        super().xSync(flags)


@contextmanager
def mount_small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a file system of that size at `folder`; skip the test without the right to mount one."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"this machine does not let root mount: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def remount(folder: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(folder)], check=True)
