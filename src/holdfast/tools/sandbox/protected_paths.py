"""Folders that no tool may reach into: the system's own, and the data folder but for a conversation's own
workspace in it."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.tools.arguments import ToolError

WORKSPACES = "workspaces"
"""Where in the data folder the workspaces lie that the server made itself."""
_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def make_workspace(workspace: Path) -> None:
    """Make a folder for its owner alone, and the one that it lies in. Raises OSError."""
    for folder in (workspace.parent, workspace):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class ProtectedPaths:
    """Knows the data folder by what it is and not by its name, so that no link or mount leads around."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100
        self._data_folder_id: tuple[int, int] | None = None
        self._system_ids = frozenset(_identities(_SYSTEM_FOLDERS))

    def resolve_workspace(self, workspace: Path) -> Path:
        """The real path of a workspace that tools may use. Raises Refused for another, OSError."""
        real = workspace.resolve()
        fd = os.open(real, _FOLDER)
        try:
            self.check_workspace(workspace, fd)
        finally:
            os.close(fd)
        return real

    def check_workspace(self, workspace: Path, fd: int) -> None:
        """Raises Refused when the open folder lies in a closed one and was not made for a conversation."""
        if not self.chosen_path(workspace):
            return
        for folder in _ancestor_identities(fd):
            if name := self._name_of(folder):
                raise ToolError(f"the workspace lies in {name}, which no tool may use")

    def chosen_path(self, workspace: Path) -> str:
        """Where a workspace lies that somebody chose; nothing for one that was made for a conversation."""
        path = Path(os.path.abspath(workspace))  # noqa: PTH100
        return str(path) if path.parent != self._folder / WORKSPACES else ""

    def protected_name(self, fd: int) -> str:
        """Which of the closed folders the open one is; nothing if it is none of them."""
        return self._name_of(_identity_of(fd))

    def identities(self) -> list[tuple[int, int]]:
        """What the closed folders are."""
        own = self._identity()
        return sorted({*self._system_ids, *([own] if own is not None else [])})

    def _name_of(self, folder: tuple[int, int]) -> str:
        if folder in self._system_ids:
            return "a folder of the system itself"
        return "the server's own folder" if folder == self._identity() else ""

    def _identity(self) -> tuple[int, int] | None:
        if self._data_folder_id is None:  # Kept: another folder that takes its name later is not it.
            try:
                found = self._folder.stat()
            except OSError:
                return None
            self._data_folder_id = found.st_dev, found.st_ino
        return self._data_folder_id


def _ancestor_identities(fd: int) -> list[tuple[int, int]]:
    """The folder and all above it."""
    found, current = [_identity_of(fd)], os.dup(fd)
    try:
        while True:
            parent = os.open("..", _FOLDER, dir_fd=current)
            os.close(current)
            current = parent
            if _identity_of(current) == found[-1]:
                return found
            found.append(_identity_of(current))
    finally:
        os.close(current)


def _identities(paths: Iterable[str]) -> Iterator[tuple[int, int]]:
    for path in paths:
        with suppress(OSError):
            found = Path(path).stat()
            yield found.st_dev, found.st_ino


def _identity_of(fd: int) -> tuple[int, int]:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino
