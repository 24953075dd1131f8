"""A record of all that is done to files, in order: by SQLite through a VFS that has the real one underneath,
and by Python's own calls. Tests add their acknowledgements to the same record."""

import io
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest


class Create(msgspec.Struct, frozen=True):
    path: Path
    is_folder: bool = False


class Write(msgspec.Struct, frozen=True):
    path: Path
    offset: int
    content: bytes


class Truncate(msgspec.Struct, frozen=True):
    path: Path
    size: int


class Sync(msgspec.Struct, frozen=True):
    """Completed: what was written to the file before is on disk now."""

    path: Path


class SyncFolder(msgspec.Struct, frozen=True):
    """Completed: names made, changed and removed in the folder before are on disk now."""

    path: Path


class Rename(msgspec.Struct, frozen=True):
    source: Path
    target: Path


class Link(msgspec.Struct, frozen=True):
    source: Path
    target: Path


class Delete(msgspec.Struct, frozen=True):
    path: Path


Step = Create | Write | Truncate | Sync | SyncFolder | Rename | Link | Delete


class Record:
    """The steps so far, from all threads, below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.steps: list[Step] = []
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.steps)

    @contextmanager
    def performing(self, *steps: Step) -> Iterator[None]:
        """Carry out what is done inside and note `steps` for it, as one, in the order of all threads."""
        with self._lock:
            yield
            self.steps += steps

    def note(self, *steps: Step) -> None:
        with self._lock:
            self.steps += steps

    def is_recorded(self, path: Path) -> bool:
        # The index beside the log is memory that happens to have a name; nothing of it is meant to last.
        return path.is_relative_to(self.root) and not path.name.endswith("-shm")

    def find(self, handle: int) -> Path | None:
        """The file or folder behind an open handle."""
        wanted = os.fstat(handle)
        places = [self.root, *self.root.rglob("*")]
        return next((path for path in places if _same(path, wanted)), None)

    def note_content(self, path: Path) -> None:
        """Note what Python code has written to a file: none of it is on disk for certain."""
        with self._lock:
            self.steps += [Create(path), Write(path, 0, path.read_bytes())]


def _same(path: Path, wanted: os.stat_result) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino)


class RecordingVFS(apsw.VFS):
    """SQLite's own way to files, with a look at what passes."""

    def __init__(self, name: str, record: Record, makedefault: bool) -> None:
        self.record = record
        self.base = apsw.vfs_names()[0]
        super().__init__(name, self.base, makedefault=makedefault)

    def xOpen(self, name: "str | apsw.URIFilename | None", flags: list[int]) -> apsw.VFSFile:
        return RecordingFile(self.base, self.record, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        path = Path(filename).resolve()
        steps: list[Step] = [Delete(path)]
        if syncdir:
            steps.append(SyncFolder(path.parent))
        with self.record.performing(*(steps if self.record.is_recorded(path) else ())):
            super().xDelete(filename, syncdir)


class RecordingFile(apsw.VFSFile):
    def __init__(
        self, base: str, record: Record, name: "str | apsw.URIFilename | None", flags: list[int]
    ) -> None:
        self._record = record
        text = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._path = Path(text).resolve() if text else None
        self._is_held = self._path is not None and record.is_recorded(self._path)
        is_new = self._is_held and self._path is not None and not self._path.exists()
        journals = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
        # As SQLite does it: the first sync of a journal that it was ready to create also syncs its folder.
        self._syncs_folder = bool(flags[0] & apsw.SQLITE_OPEN_CREATE and flags[0] & journals)
        with record.performing(*([Create(self._path)] if is_new and self._path else [])):
            super().__init__(base, name, flags)

    def xWrite(self, data: Any, offset: int) -> None:
        with self._performing(lambda path: Write(path, offset, bytes(data))):
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        with self._performing(lambda path: Truncate(path, newsize)):
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        with self._performing(Sync):
            super().xSync(flags)
        if self._syncs_folder and self._is_held and self._path is not None:
            self._record.note(SyncFolder(self._path.parent))
            self._syncs_folder = False

    @contextmanager
    def _performing(self, step: Callable[[Path], Step]) -> Iterator[None]:
        noted = [step(self._path)] if self._is_held and self._path is not None else []
        with self._record.performing(*noted):
            yield


@contextmanager
def recording(record: Record, name: str, everywhere: bool = False) -> Iterator[None]:
    """Record Python's changes to names, and SQLite under the VFS called `name`, or under any."""
    vfs = RecordingVFS(name, record, everywhere)
    with pytest.MonkeyPatch.context() as patch:
        _watch_python(record, patch)
        try:
            yield
        finally:
            vfs.unregister()


def _watch_python(record: Record, patch: pytest.MonkeyPatch) -> None:
    real_fsync, real_open = os.fsync, io.open

    def fsync(handle: int) -> None:
        real_fsync(handle)
        path = record.find(handle)
        if path is not None and record.is_recorded(path):
            if stat.S_ISDIR(os.fstat(handle).st_mode):
                record.note(SyncFolder(path))
            else:
                record.note_content(path)
                record.note(Sync(path))

    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        handle = real_open(file, mode, *args, **options)
        if mode[0] in "wx" and isinstance(file, str | Path) and record.is_recorded(Path(file).resolve()):
            record.note(Create(Path(file).resolve()))
        return handle

    patch.setattr(os, "fsync", fsync)
    patch.setattr(io, "open", opened)
    _watch_names(record, patch)


def _watch_names(record: Record, patch: pytest.MonkeyPatch) -> None:
    def watch(name: str, step: Callable[..., Step]) -> None:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> None:
            paths = [Path(arg).resolve() for arg in args if isinstance(arg, str | Path)]
            with record.performing(*([step(*paths)] if record.is_recorded(paths[0]) else [])):
                real(*args, **options)

        patch.setattr(os, name, call)

    watch("replace", Rename)
    watch("rename", Rename)
    watch("link", Link)
    watch("unlink", Delete)
    watch("mkdir", lambda path: Create(path, is_folder=True))
