"""Folders that no tool may reach into: the system's own, and the data folder but for a conversation's own
workspace in it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.tools.arguments import Refused

WORKSPACES = "workspaces"
"""Where in the data folder the workspaces lie that the server made itself."""
_OF_SYSTEM = ("/proc", "/sys", "/dev")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def make_workspace(workspace: Path) -> None:
    """Make a folder for its owner alone, and the one that it lies in. Raises OSError."""
    for folder in (workspace.parent, workspace):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class Vault:
    """Knows the data folder by what it is and not by its name, so that no link or mount leads around."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100
        self._known: tuple[int, int] | None = None
        self._of_system = frozenset(_identities(_OF_SYSTEM))

    def admitted(self, workspace: Path) -> Path:
        """The real path of a workspace that tools may use. Raises Refused for another, OSError."""
        real = workspace.resolve()
        opened = os.open(real, _FOLDER)
        try:
            self.admit(workspace, opened)
        finally:
            os.close(opened)
        return real

    def admit(self, workspace: Path, opened: int) -> None:
        """Raises Refused when the open folder lies in a closed one and was not made for a conversation."""
        if not self.place_of(workspace):
            return
        for folder in _upwards(opened):
            if whose := self._whose(folder):
                raise Refused(f"the workspace lies in {whose}, which no tool may use")

    def place_of(self, workspace: Path) -> str:
        """Where a workspace lies that somebody chose; nothing for one that was made for a conversation."""
        place = Path(os.path.abspath(workspace))  # noqa: PTH100
        return str(place) if place.parent != self._folder / WORKSPACES else ""

    def closed(self, opened: int) -> str:
        """Which of the closed folders the open one is; nothing if it is none of them."""
        return self._whose(_identity_of(opened))

    def identities(self) -> list[tuple[int, int]]:
        """What the closed folders are."""
        own = self._identity()
        return sorted({*self._of_system, *([own] if own is not None else [])})

    def _whose(self, folder: tuple[int, int]) -> str:
        if folder in self._of_system:
            return "a folder of the system itself"
        return "the server's own folder" if folder == self._identity() else ""

    def _identity(self) -> tuple[int, int] | None:
        if self._known is None:  # Kept: another folder that takes its name later is not it.
            try:
                found = self._folder.stat()
            except OSError:
                return None
            self._known = found.st_dev, found.st_ino
        return self._known


def _upwards(opened: int) -> list[tuple[int, int]]:
    """The folder and all above it."""
    found, here = [_identity_of(opened)], os.dup(opened)
    try:
        while True:
            above = os.open("..", _FOLDER, dir_fd=here)
            os.close(here)
            here = above
            if _identity_of(here) == found[-1]:
                return found
            found.append(_identity_of(here))
    finally:
        os.close(here)


def _identities(paths: Iterable[str]) -> Iterator[tuple[int, int]]:
    for path in paths:
        with suppress(OSError):
            found = Path(path).stat()
            yield found.st_dev, found.st_ino


def _identity_of(opened: int) -> tuple[int, int]:
    found = os.fstat(opened)
    return found.st_dev, found.st_ino
