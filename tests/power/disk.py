"""A disk after a loss of power: synced data is there; of the rest, nothing, all, or torn parts."""

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from tests.power.recording import Create, Delete, Link, Rename, Step, Sync, SyncFolder, Truncate, Write

SECTOR_BYTES = (512, 4_096)
Files = Mapping[Path, bytes]


class _File(msgspec.Struct, eq=False):
    """A file without its name. Names come and go; two of them may be one file."""

    durable: bytes = b""
    pending: list[Write | Truncate] = []
    is_folder: bool = False


class SimulatedDisk:
    """Apply steps one by one; return at any moment what a loss of power would leave."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._names: dict[Path, _File] = {}
        self._durable_names: dict[Path, _File] = {}
        self._pending_names: list[tuple[frozenset[Path], dict[Path, _File | None]]] = []

    @classmethod
    def holding(cls, root: Path) -> "SimulatedDisk":
        """Return a disk on which everything below `root` has long been synced."""
        disk = cls(root)
        for path in sorted(disk._root.rglob("*")):
            if not path.name.endswith("-shm"):
                content = b"" if path.is_dir() else path.read_bytes()
                disk._names[path] = _File(content, [], path.is_dir())
        disk._durable_names = dict(disk._names)
        return disk

    def apply(self, step: Step) -> None:
        match step:
            case Create():
                known = self._names.get(step.path)
                if known is None:
                    self._rename({step.path: _File(b"", [], step.is_folder)})
            case Write() | Truncate():
                self._file(step.path).pending.append(step)
            case Sync():
                file = self._file(step.path)
                file.durable = _apply(file.durable, file.pending)
                file.pending = []
            case Rename():
                file = self._file(step.source)
                self._rename({step.target: file, step.source: None})
            case Link():
                self._rename({step.target: self._file(step.source)})
            case Delete():
                self._rename({step.path: None})
            case SyncFolder():
                self._sync_folder(step.path)

    def after_power_loss(self, rng: random.Random | None = None) -> Files:
        """Return what is left. Without `chance`: only synced data, and only under synced names."""
        names = dict(self._durable_names)
        for _, change in self._pending_names:
            if rng is not None and rng.random() < 0.5:
                _set(names, change)
        keep = {id(file): _torn(file, rng) for file in names.values()}
        return {
            path: keep[id(file)]
            for path, file in names.items()
            if not file.is_folder and self._is_reachable(path, names)
        }

    def _is_reachable(self, path: Path, names: dict[Path, _File]) -> bool:
        above = (parent for parent in path.parents if self._root in parent.parents)
        return all(parent in names for parent in above)

    def _file(self, path: Path) -> _File:
        # A file that Python code wrote and never synced is met here first: by its next name, still empty.
        file = self._names.get(path)
        if file is None:
            file = _File(b"", [])
            self._rename({path: file})
        return file

    def _rename(self, change: dict[Path, _File | None]) -> None:
        _set(self._names, change)
        self._pending_names.append((frozenset(path.parent for path in change), change))

    def _sync_folder(self, folder: Path) -> None:
        waiting = []
        for folders, change in self._pending_names:
            if folder in folders:
                _set(self._durable_names, change)
            else:
                waiting.append((folders, change))
        self._pending_names = waiting


def lay_out(files: Files, root: Path, target: Path) -> None:
    """Write `files`, which were below `root`, below `target`."""
    for path, content in files.items():
        place = target / path.relative_to(root.resolve())
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _set(names: dict[Path, _File], change: Mapping[Path, _File | None]) -> None:
    for path, file in change.items():
        if file is None:
            names.pop(path, None)
        else:
            names[path] = file


def _apply(content: bytes, steps: Iterable[Write | Truncate]) -> bytes:
    image = bytearray(content)
    for step in steps:
        if isinstance(step, Truncate):
            image[:] = image[: step.size].ljust(step.size, b"\0")
        else:
            _put(image, step.offset, step.content)
    return bytes(image)


def _put(image: bytearray, offset: int, content: bytes) -> None:
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(content)] = content


def _torn(file: _File, rng: random.Random | None) -> bytes:
    """Tear unsynced data: each sector survives or not; some hold neither the old nor the new content."""
    if rng is None or not file.pending:
        return file.durable
    survival, garbage = rng.choice((0.0, 0.3, 0.7, 0.95, 1.0)), rng.choice((0.0, 0.0, 0.1))
    sector = rng.choice(SECTOR_BYTES)
    image = bytearray(file.durable)
    for step in file.pending:
        if isinstance(step, Truncate):
            if rng.random() < survival:
                image[:] = image[: step.size].ljust(step.size, b"\0")
            continue
        for offset, piece in _sectors(step, sector):
            if rng.random() < garbage:
                _put(image, offset, rng.randbytes(len(piece)))
            elif rng.random() < survival:
                _put(image, offset, piece)
    return bytes(image)


def _sectors(write: Write, sector: int) -> Iterable[tuple[int, bytes]]:
    start, end = write.offset, write.offset + len(write.content)
    while start < end:
        stop = min(end, (start // sector + 1) * sector)
        yield start, write.content[start - write.offset : stop - write.offset]
        start = stop
