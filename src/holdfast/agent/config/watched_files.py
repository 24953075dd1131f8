"""Read files that people write in a folder again when they change, with a copy of the last valid text.

Checking an unchanged file costs one system call. For an invalid file, the last valid reading stays in force,
even one from an earlier process, and its problem is reported. A name cannot lead out of the folder, and no
link is followed.
"""

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import AGENT_FILE_BYTES_MAX, AGENT_FILES_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.settings.edit import replace_file

_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = ".last-good"
T = TypeVar("T")
Stamp = tuple[int, int, int, int]
SETTLED_MS = 2_000
"""A file that changed less long ago may change again without its times showing it."""
NAME_RULE = "a name has only small letters, digits, - and _, and at most 40 of them"


class LastGoodCopies:
    """Copies of valid texts in a subfolder. With `writes`, this process updates them.

    Nothing here raises: without a copy, the file itself is all that is known.
    """

    def __init__(self, folder: Path, suffix: str, writes: bool) -> None:
        self._folder = folder / FOLDER
        self._suffix = suffix
        self._writes = writes

    def read(self, name: str) -> str | None:
        """Return the copy of the file of that name, or None."""
        try:
            with os.fdopen(os.open(self._path_of(name), _OPEN_FLAGS), "rb") as file:
                body = file.read(AGENT_FILE_BYTES_MAX + 1)
            return body.decode("utf-8") if len(body) <= AGENT_FILE_BYTES_MAX else None
        except (OSError, UnicodeDecodeError):
            return None

    def save(self, name: str, text: str) -> None:
        if not self._writes or self.read(name) == text:
            return
        with suppress(OSError, UnicodeEncodeError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            replace_file(self._path_of(name), text)

    def prune(self, names: list[str]) -> None:
        """Remove the copies of files that no longer exist."""
        if not self._writes:
            return
        with suppress(OSError):
            for found in list(self._folder.iterdir()):
                is_draft = found.name.startswith(".")  # Another process may be writing it.
                if not is_draft and found.name.removesuffix(self._suffix) not in names:
                    found.unlink()

    def _path_of(self, name: str) -> Path:
        return self._folder / f"{name}{self._suffix}"


class FileFormat(msgspec.Struct, Generic[T], frozen=True):
    """The format of a folder's files: their suffix, their names, their parser.

    `make_error` takes a file and what is wrong with it, and returns the error that `parse` raises too.
    """

    folder: str
    suffix: str
    is_name: Callable[[str], bool]
    parse: Callable[[str, str], T]
    make_error: Callable[[str, str], HoldfastError]


class FileState(msgspec.Struct, Generic[T]):
    """The state of one file: its last valid value, and what is wrong with it now."""

    stamp: Stamp
    is_settled: bool
    text: str = ""
    last_good: T | None = None
    problem: HoldfastError | None = None


class WatchedFiles(Generic[T]):
    """The files of one folder. `notify` reports an invalid file. Their texts go through `mask`.

    `copies` has their last valid texts, from whichever process.
    """

    def __init__(
        self,
        base: Path,
        file_format: FileFormat[T],
        clock: Clock,
        notify: Callable[[str], None] = lambda line: None,
        mask: MaskFunction = no_mask,
        copies: LastGoodCopies | None = None,
    ) -> None:
        self.folder = base / file_format.folder
        self._format = file_format
        self._clock = clock
        self._notify = notify
        self._mask = mask
        self._copies = copies
        self._states: dict[str, FileState[T]] = {}

    def read_all(self) -> None:
        """Read all files. `problems` returns what is wrong with them; `notify` reports nothing."""
        names = self.names()[0]
        if self._copies is not None:
            self._copies.prune(names)
        for name in names:
            self.get(name, notifies=False)

    def get(self, name: str, notifies: bool = True) -> FileState[T] | None:
        """Return the state of the file of that name as it is now, or None."""
        if not self._format.is_name(name):
            return None
        try:
            found = self.path(name).lstat()
        except OSError:
            if self._states.pop(name, None) is not None and self._copies is not None:
                self._copies.prune(self.names()[0])
            return None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        state = self._states.get(name)
        if state is None or state.stamp != stamp or not state.is_settled:
            state = self._states[name] = self._read(name, stamp, state, notifies)
        return state

    def get_cached(self, name: str) -> T | None:
        """Return the last valid value of a file, without checking it again."""
        state = self._states.get(name)
        return state.last_good if state is not None else None

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of the files, and what is wrong with those whose names are invalid."""
        names, problems = list[str](), list[str]()
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.startswith(".") or not entry.name.endswith(self._format.suffix):
                        continue
                    name = entry.name.removesuffix(self._format.suffix)
                    if self._format.is_name(name):
                        names.append(name)
                    else:
                        shown = self._mask(f"{self._format.folder}/{_printable(entry.name)}")
                        problems.append(str(self._format.make_error(shown, NAME_RULE)))
        except OSError:
            return [], []
        return sorted(names)[:AGENT_FILES_MAX], sorted(problems)[:AGENT_FILES_MAX]

    def problems(self) -> list[str]:
        """Return what is wrong with the files now, in sentences."""
        names, name_problems = self.names()
        states = [self.get(name) for name in names]
        return [
            *name_problems,
            *(str(state.problem) for state in states if state is not None and state.problem),
        ]

    def path(self, name: str) -> Path:
        assert self._format.is_name(name), "checked by whoever asks"
        return self.folder / f"{name}{self._format.suffix}"

    def _read(self, name: str, stamp: Stamp, previous: FileState[T] | None, notifies: bool) -> FileState[T]:
        changed_ms = max(stamp[2], stamp[3]) // 1_000_000
        state = FileState[T](stamp, self._clock.now_ms() - changed_ms > SETTLED_MS)
        state.last_good = previous.last_good if previous is not None else self._last_good(name)
        try:
            state.text = self._mask(self._text(name))
            state.last_good = self._format.parse(name, state.text)
            if self._copies is not None:
                self._copies.save(name, state.text)
        except HoldfastError as error:
            state.problem = error
            if notifies and (previous is None or str(previous.problem) != str(error)):
                stays = " It stays as it was." if state.last_good is not None else ""
                self._notify(f"holdfast: {self._mask(str(error))}{stays}")
        return state

    def _last_good(self, name: str) -> T | None:
        """Parse the copy of the last valid text, if it is still valid."""
        text = self._copies.read(name) if self._copies is not None else None
        if text is None:
            return None
        try:
            return self._format.parse(name, self._mask(text))
        except HoldfastError:
            return None  # It names a tool or folder that no longer exists.

    def _text(self, name: str) -> str:
        """Return the file's text. Raises the errors of `make_error`."""
        shown = f"{self._format.folder}/{name}{self._format.suffix}"
        try:
            with os.fdopen(os.open(self.path(name), _OPEN_FLAGS), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise self._format.make_error(shown, "this is no plain file")
                body = file.read(AGENT_FILE_BYTES_MAX + 1)
            if len(body) > AGENT_FILE_BYTES_MAX:
                raise self._format.make_error(shown, f"this has more than {AGENT_FILE_BYTES_MAX:,} bytes")
            return body.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError:
            raise self._format.make_error(shown, "this is not text in UTF-8") from None
        except OSError as error:
            why = "this is a link; put the file itself here" if self.path(name).is_symlink() else ""
            raise self._format.make_error(shown, why or f"this cannot be read: {error.strerror}") from None


def text_digest(text: str) -> str:
    """Return the digest by which two editors notice that they changed the same file."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)[:80]
