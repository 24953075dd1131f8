"""A backup with workspaces: one tar file with a copy of the store and the folders of conversations.

`pack` stores links as links, never follows them, and leaves out everything but files, folders and links.
`unpack` extracts into a new folder, by rules that are stricter than `tarfile`'s own and the same on every
Python version. It refuses what `pack` would not write, and creates links last, so that no write goes through
one.
"""

import os
import stat
import tarfile
from collections.abc import Callable
from errno import ENAMETOOLONG
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO

from holdfast.domain.errors import BadBackup, DiskFull
from holdfast.domain.ids import is_id
from holdfast.domain.transcript.labels import strip_control_chars
from holdfast.store.maintenance import Progress
from holdfast.store.plain_files import atomic_write

STORE, WORKSPACES = "holdfast.db", "workspaces"
"""The names in an archive: of the store's copy, which comes first, and of the folder with the workspaces."""
CHUNK_BYTES = 1_000_000
PARTS_MAX, PATH_BYTES_MAX = 100, 3_000
"""Limits of a path in an archive: longer ones cannot be created on every file system."""
_UNSUPPORTED = "it is neither a file nor a folder nor a link"
_BLOCK = tarfile.BLOCKSIZE
_MAGIC, _MAGIC_AT = b"ustar", 257
_END = bytes(2 * _BLOCK)
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_PERMISSIONS = 0o777


def is_archive(path: Path) -> bool:
    """Return whether a file is a tar file."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(_BLOCK)[_MAGIC_AT:].startswith(_MAGIC)


def pack(path: Path, copy: Path, workspaces: Path, progress: Progress) -> list[str]:
    """Write a copy of the store and all workspaces to `path`, which appears only once it is complete.

    Return what was left out, a line each. Raises OSError.
    """
    packed: set[Path] = set()
    with atomic_write(path) as part, part.open("wb") as file:
        packing = _ArchiveWriter(file, lambda done: progress(done, max(len(found), done) + 1))
        found = _workspaces(workspaces)
        packing.add_copy(copy)
        # Look again at the end: a session that continues in another one takes its folder along.
        while fresh := sorted(set(found) - packed):
            for workspace in fresh:
                packing.add_workspace(workspace)
            packed.update(fresh)
            found = _workspaces(workspaces)
        file.write(_END)
    return packing.left_out


def _workspaces(folder: Path) -> list[Path]:
    return [child for child in folder.iterdir() if is_id(child.name)] if folder.is_dir() else []


class _ArchiveWriter:
    """Write one archive. Call `tick` with the number of finished parts; an exception from it stops that."""

    def __init__(self, file: BinaryIO, tick: Callable[[int], None]) -> None:
        self.left_out: list[str] = []
        self._file = file
        self._tick = tick
        self._done = 0

    def add_copy(self, copy: Path) -> None:
        with copy.open("rb") as source:
            self._add_file(Path(STORE), source, os.fstat(source.fileno()))
        self._done += 1

    def add_workspace(self, folder: Path) -> None:
        self._add_folder(Path(WORKSPACES, folder.name), folder, None)
        self._done += 1

    def _add_folder(self, place: Path, name: Path | str, parent: int | None) -> None:
        try:
            if len(place.parts) > PARTS_MAX or len(os.fsencode(place)) > PATH_BYTES_MAX:
                raise OSError(ENAMETOOLONG, "it lies too deep")
            opened = os.open(name, _READ_FLAGS | os.O_DIRECTORY, dir_fd=parent)
        except OSError as error:
            self._leave_out(place, error)
            return
        try:
            self._add(_tar_entry(place, os.fstat(opened), tarfile.DIRTYPE))
            for child in sorted(os.listdir(opened)):  # noqa: PTH208 (of an open folder)
                self._add_child(place / child, child, opened)
        finally:
            os.close(opened)

    def _add_child(self, place: Path, name: str, folder: int) -> None:
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            kind = stat.S_IFMT(found.st_mode)
            target = os.readlink(name, dir_fd=folder) if kind == stat.S_IFLNK else ""
            opened = os.open(name, _READ_FLAGS, dir_fd=folder) if kind == stat.S_IFREG else None
        except OSError as error:
            self._leave_out(place, error)
            return
        if kind == stat.S_IFDIR:
            self._add_folder(place, name, folder)
        elif target:
            self._add(_tar_entry(place, found, tarfile.SYMTYPE, target))
        elif opened is not None:
            with os.fdopen(opened, "rb") as source:
                # Stat again: a program may have replaced the file since.
                self._add_file(place, source, os.fstat(opened))
        else:
            self._leave_out(place, _UNSUPPORTED)

    def _add_file(self, place: Path, source: BinaryIO, found: os.stat_result) -> None:
        if not stat.S_ISREG(found.st_mode):
            self._leave_out(place, _UNSUPPORTED)
            return
        self._add(_tar_entry(place, found, tarfile.REGTYPE))
        left = found.st_size
        while left and (piece := _read(source, min(left, CHUNK_BYTES))):
            self._file.write(piece)
            left -= len(piece)
            self._tick(self._done)
        if left:
            # The header before it already states the length.
            self._leave_out(place, "it could not be read to the end; the rest is zeros")
            self._file.seek(left - 1, os.SEEK_CUR)
            self._file.write(b"\0")
        self._file.write(bytes(-found.st_size % _BLOCK))

    def _add(self, entry: tarfile.TarInfo) -> None:
        self._tick(self._done)
        self._file.write(entry.tobuf(tarfile.PAX_FORMAT, "utf-8"))

    def _leave_out(self, place: Path, why: OSError | str) -> None:
        self.left_out.append(_skip_reason(place, why.strerror if isinstance(why, OSError) else why))


def _skip_reason(place: Path | str, why: str | None) -> str:
    """Describe what was left out, on one line that any terminal can show."""
    return strip_control_chars(" ".join(f"{place}: {why}".split())).encode("utf-8", "replace").decode()


def _tar_entry(place: Path, found: os.stat_result, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """Return a file's archive entry: its name, mode and time, without its owner."""
    entry = tarfile.TarInfo(str(place))
    entry.type, entry.mode, entry.mtime = kind, stat.S_IMODE(found.st_mode) & _PERMISSIONS, found.st_mtime
    entry.linkname, entry.size = target, found.st_size if kind == tarfile.REGTYPE else 0
    return entry


def _read(source: BinaryIO, size: int) -> bytes:
    try:
        return source.read(size)
    except OSError:
        return b""


def unpack(path: Path, folder: Path, progress: Progress) -> list[str]:
    """Extract an archive into `folder`, which is empty and private. Return what was left out.

    Links that lead out of their workspace are left out. Raises BadBackup for what `pack` did not write,
    DiskFull, OSError.
    """
    size, disk = path.stat().st_size, os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < size:
        raise DiskFull(path=folder)
    unpacking = _ArchiveReader(folder)
    try:
        with path.open("rb") as file, tarfile.open(fileobj=file, mode="r:", encoding="utf-8") as tar:
            while (entry := tar.next()) is not None:
                progress(entry.offset, size)
                unpacking.add(tar, entry)
                tar.members.clear()  # type: ignore[attr-defined]  # Else all are held until the end.
            unpacking.finish(file)
    except (_InvalidArchive, tarfile.TarError, ValueError, OverflowError) as error:
        raise BadBackup(path=path, why=strip_control_chars(str(error))) from None
    return unpacking.left_out


class _InvalidArchive(Exception):
    """An archive holds something that `pack` does not write."""


class _ArchiveReader:
    """Extract one archive."""

    def __init__(self, folder: Path) -> None:
        self.left_out: list[str] = []
        self._folder = folder
        self._folders: dict[tuple[str, ...], tarfile.TarInfo] = {}
        self._links: dict[tuple[str, ...], str] = {}
        (folder / WORKSPACES).mkdir(mode=0o700)

    def add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        """Create a file or a folder; record a link for later. Raises _Refused."""
        names = tuple(entry.name.split("/"))
        is_workspace = len(names) == 2 and names[0] == WORKSPACES and is_id(names[1])
        # Only a folder that this extraction created may contain entries.
        in_workspace = names[:-1] in self._folders and names[-1] not in ("", ".", "..")
        if not in_workspace and not (is_workspace and entry.isdir()) and names != (STORE,):
            raise _InvalidArchive(f"it contains an unexpected entry, {entry.name}")
        if names in self._links or os.path.lexists(self._place(names)):
            raise _InvalidArchive(f"{entry.name} is in it twice")
        if entry.isdir():
            self._place(names).mkdir(mode=0o700)
            self._folders[names] = entry
        elif entry.issym():
            self._links[names] = entry.linkname
        elif entry.type == tarfile.REGTYPE and not entry.issparse():
            self._make_file(tar, entry, self._place(names))
        else:
            raise _InvalidArchive(f"{entry.name}: {_UNSUPPORTED}")

    def finish(self, file: BinaryIO) -> None:
        """Create the links and restore the permissions of folders, after checking that the end is there."""
        file.seek(max(0, file.tell() - _BLOCK))
        rest = file.read(tarfile.RECORDSIZE + 1)
        if not rest.startswith(_END) or any(rest) or not (self._folder / STORE).exists():
            raise _InvalidArchive("it is not whole")
        for names, target in self._links.items():
            if _stays_inside(names, target):
                self._place(names).symlink_to(target)
            else:
                self.left_out.append(
                    _skip_reason("/".join(names), f"this link to {target} may lead out of its folder")
                )
        for names, entry in reversed(self._folders.items()):
            _restore_metadata(self._place(names), entry)

    def _make_file(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, place: Path) -> None:
        source = tar.extractfile(entry)
        assert source is not None, "it is a file"
        with os.fdopen(os.open(place, _CREATE_FLAGS, 0o600), "wb") as file, source:
            while piece := source.read(CHUNK_BYTES):
                file.write(piece)
        _restore_metadata(place, entry)

    def _place(self, names: tuple[str, ...]) -> Path:
        return self._folder.joinpath(*names)


def _restore_metadata(place: Path, entry: tarfile.TarInfo) -> None:
    os.utime(place, (entry.mtime, entry.mtime))
    place.chmod(entry.mode & _PERMISSIONS)


def _stays_inside(names: tuple[str, ...], target: str) -> bool:
    """Return whether a link stays in its workspace: `..` only in front, and never above the workspace."""
    steps = [step for step in target.split("/") if step not in ("", ".")]
    ups = len(list(takewhile(lambda step: step == "..", steps)))
    return not target.startswith("/") and ".." not in steps[ups:] and ups <= len(names) - 3
