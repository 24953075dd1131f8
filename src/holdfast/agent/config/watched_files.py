"""Files that people write in a folder: read again when they change, with a copy of the last valid text.

A look at a file that has not changed costs one question to the system. Of one that cannot be used the last
good reading stays, the one that was kept from an earlier process included, and what is wrong with it is told.
No name leads out of the folder; no link is followed.
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

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = ".last-good"
T = TypeVar("T")
Stamp = tuple[int, int, int, int]
SETTLED_MS = 2_000
"""A file that was changed less long ago may change again without its times showing it."""
NAME_RULE = "a name has only small letters, digits, - and _, and at most 40 of them"


class LastGoodCopies:
    """In a folder of the one that people write into. `writes`: this process keeps them level.

    Nothing here raises: where there is no copy, the file itself is all that is known.
    """

    def __init__(self, folder: Path, suffix: str, writes: bool) -> None:
        self._folder = folder / FOLDER
        self._suffix = suffix
        self._writes = writes

    def read(self, name: str) -> str | None:
        """What the file of that name said; None where that is not known."""
        try:
            with os.fdopen(os.open(self._path_of(name), _FILE), "rb") as file:
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
        """Let go of those whose files are there no more."""
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
    """What the files of a folder are: how they end, what they may be called, how they are read.

    `read` and `bad` give and raise the errors that people are told; `bad` takes a file and what is wrong.
    """

    folder: str
    suffix: str
    is_name: Callable[[str], bool]
    parse: Callable[[str, str], T]
    make_error: Callable[[str, str], HoldfastError]


class FileState(msgspec.Struct, Generic[T]):
    """What is known of one file: the last good thing that it said, and what is wrong with it now."""

    stamp: Stamp
    is_settled: bool
    text: str = ""
    last_good: T | None = None
    problem: HoldfastError | None = None


class WatchedFiles(Generic[T]):
    """`note` tells people of a file that cannot be used. What the files say goes through `mask`.

    `kept` has what they said when they were last right, in whichever process that was.
    """

    def __init__(
        self,
        base: Path,
        kind: FileFormat[T],
        clock: Clock,
        notify: Callable[[str], None] = lambda line: None,
        mask: MaskFunction = no_mask,
        copies: LastGoodCopies | None = None,
    ) -> None:
        self.folder = base / kind.folder
        self._kind = kind
        self._clock = clock
        self._notify = notify
        self._mask = mask
        self._copies = copies
        self._states: dict[str, FileState[T]] = {}

    def read_all(self) -> None:
        """Know all of them. What is wrong with one is among `problems`, and not noted beside them."""
        names = self.names()[0]
        if self._copies is not None:
            self._copies.prune(names)
        for name in names:
            self.get(name, notifies=False)

    def get(self, name: str, notifies: bool = True) -> FileState[T] | None:
        """What is known of the file of that name as it is now; None if there is none."""
        if not self._kind.is_name(name):
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
        """The last good thing that was read of it, without looking again."""
        state = self._states.get(name)
        return state.last_good if state is not None else None

    def names(self) -> tuple[list[str], list[str]]:
        """The names of the files that there are, and what is wrong with those that can have no name."""
        names, problems = list[str](), list[str]()
        try:
            with os.scandir(self.folder) as found:
                for each in found:
                    if each.name.startswith(".") or not each.name.endswith(self._kind.suffix):
                        continue
                    name = each.name.removesuffix(self._kind.suffix)
                    if self._kind.is_name(name):
                        names.append(name)
                    else:
                        shown = self._mask(f"{self._kind.folder}/{_printable(each.name)}")
                        problems.append(str(self._kind.make_error(shown, NAME_RULE)))
        except OSError:
            return [], []
        return sorted(names)[:AGENT_FILES_MAX], sorted(problems)[:AGENT_FILES_MAX]

    def problems(self) -> list[str]:
        """What is wrong with the files that are there now, in sentences."""
        names, name_problems = self.names()
        found = [self.get(name) for name in names]
        return [*name_problems, *(str(each.problem) for each in found if each is not None and each.problem)]

    def path(self, name: str) -> Path:
        assert self._kind.is_name(name), "checked by whoever asks"
        return self.folder / f"{name}{self._kind.suffix}"

    def _read(self, name: str, stamp: Stamp, previous: FileState[T] | None, notifies: bool) -> FileState[T]:
        changed_ms = max(stamp[2], stamp[3]) // 1_000_000
        state = FileState[T](stamp, self._clock.now_ms() - changed_ms > SETTLED_MS)
        state.last_good = previous.last_good if previous is not None else self._last_good(name)
        try:
            state.text = self._mask(self._text(name))
            state.last_good = self._kind.parse(name, state.text)
            if self._copies is not None:
                self._copies.save(name, state.text)
        except HoldfastError as error:
            state.problem = error
            if notifies and (previous is None or str(previous.problem) != str(error)):
                stays = " It stays as it was." if state.last_good is not None else ""
                self._notify(f"holdfast: {self._mask(str(error))}{stays}")
        return state

    def _last_good(self, name: str) -> T | None:
        """What it said when some process last read it well, if that can still be used."""
        text = self._copies.read(name) if self._copies is not None else None
        if text is None:
            return None
        try:
            return self._kind.parse(name, self._mask(text))
        except HoldfastError:
            return None  # What it names is there no more.

    def _text(self, name: str) -> str:
        """What the file holds. Raises what `bad` gives."""
        shown = f"{self._kind.folder}/{name}{self._kind.suffix}"
        try:
            with os.fdopen(os.open(self.path(name), _FILE), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise self._kind.make_error(shown, "this is no plain file")
                body = file.read(AGENT_FILE_BYTES_MAX + 1)
            if len(body) > AGENT_FILE_BYTES_MAX:
                raise self._kind.make_error(shown, f"this has more than {AGENT_FILE_BYTES_MAX:,} bytes")
            return body.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError:
            raise self._kind.make_error(shown, "this is not text in UTF-8") from None
        except OSError as error:
            why = "this is a link; put the file itself here" if self.path(name).is_symlink() else ""
            raise self._kind.make_error(shown, why or f"this cannot be read: {error.strerror}") from None


def text_digest(text: str) -> str:
    """By which two editors notice that they have changed the same file."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name)[:80]
