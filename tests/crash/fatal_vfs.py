"""A VFS that kills its own process at a chosen call: before it, in the middle of it, or after it."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw


class CrashTrigger:
    """Count the matching calls once armed, and kill the process at the last one."""

    def __init__(self, rng: random.Random) -> None:
        self._when = rng.choice(("before", "half", "after"))
        self._left = 0
        self._matches: Callable[[str, str], bool] = lambda path, call: False

    def arm(self, after: int, matches: Callable[[str, str], bool]) -> None:
        """Die at the call number `after` for which `matches(path, call)` holds."""
        self._left, self._matches = after, matches

    @contextmanager
    def at(self, path: str, call: str, half: Callable[[], object] = lambda: None) -> Iterator[None]:
        if not self._left or not self._matches(path, call):
            yield
            return
        self._left -= 1
        if self._left == 0 and self._when != "after":
            if self._when == "half":
                half()
            _die()
        yield
        if self._left == 0:
            _die()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FatalVFS(apsw.VFS):
    """The default VFS from here on, so that copies go through it too."""

    def __init__(self, name: str, trigger: CrashTrigger) -> None:
        self._fatality = trigger
        self._base = apsw.vfs_names()[0]
        super().__init__(name, self._base, makedefault=True)

    def xOpen(self, name: "str | apsw.URIFilename | None", flags: list[int]) -> apsw.VFSFile:
        return FatalFile(self._base, self._fatality, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        with self._fatality.at(filename, "delete"):
            super().xDelete(filename, syncdir)


class FatalFile(apsw.VFSFile):
    def __init__(
        self, base: str, trigger: CrashTrigger, name: "str | apsw.URIFilename | None", flags: list[int]
    ) -> None:
        self._fatality = trigger
        self._path = (name.filename() if isinstance(name, apsw.URIFilename) else name) or ""
        with trigger.at(self._path, "open"):
            super().__init__(base, name, flags)

    def xRead(self, amount: int, offset: int) -> bytes:
        with self._fatality.at(self._path, "read"):
            return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:
        piece = bytes(data)[: len(data) // 2]
        with self._fatality.at(self._path, "write", lambda: super(FatalFile, self).xWrite(piece, offset)):
            super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        with self._fatality.at(self._path, "truncate"):
            super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        with self._fatality.at(self._path, "sync"):
            super().xSync(flags)
