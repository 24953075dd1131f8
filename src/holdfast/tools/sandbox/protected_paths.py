"""Refuse folders that no tool may access: those of the system, and the data folder except workspaces."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.tools.arguments import ToolError

WORKSPACES = "workspaces"
"""The subfolder of the data folder for the workspaces that the server creates."""
_SYSTEM_FOLDERS = ("/proc", "/sys", "/dev")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def make_workspace(workspace: Path) -> None:
    """Create a workspace and its parent, accessible only to their owner. Raises OSError."""
    for folder in (workspace.parent, workspace):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


class ProtectedPaths:
    """Recognise protected folders by identity rather than name, so that no link or mount leads around."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100
        self._data_folder_id: tuple[int, int] | None = None
        self._system_ids = frozenset(_identities(_SYSTEM_FOLDERS))

    def resolve_workspace(self, workspace: Path) -> Path:
        """Return the real path of a workspace. Raises OSError, and ToolError if no tool may use it."""
        real = workspace.resolve()
        fd = os.open(real, _FOLDER)
        try:
            self.check_workspace(workspace, fd)
        finally:
            os.close(fd)
        return real

    def check_workspace(self, workspace: Path, fd: int) -> None:
        """Raise ToolError if a workspace that somebody chose lies in a protected folder."""
        if not self.chosen_path(workspace):
            return
        for folder in _ancestor_identities(fd):
            if name := self._name_of(folder):
                raise ToolError(f"the workspace lies in {name}, which no tool may use")

    def chosen_path(self, workspace: Path) -> str:
        """Return the path of a workspace that somebody chose, or an empty text if the server created it."""
        path = Path(os.path.abspath(workspace))  # noqa: PTH100
        return str(path) if path.parent != self._folder / WORKSPACES else ""

    def protected_name(self, fd: int) -> str:
        """Return which protected folder an open one is, or an empty text if it is none."""
        return self._name_of(_identity_of(fd))

    def identities(self) -> list[tuple[int, int]]:
        """Return the identities of the protected folders."""
        own = self._identity()
        return sorted({*self._system_ids, *([own] if own is not None else [])})

    def _name_of(self, folder: tuple[int, int]) -> str:
        if folder in self._system_ids:
            return "a folder of the system itself"
        return "the server's own folder" if folder == self._identity() else ""

    def _identity(self) -> tuple[int, int] | None:
        if self._data_folder_id is None:  # Remembered, since another folder could take its name later.
            try:
                found = self._folder.stat()
            except OSError:
                return None
            self._data_folder_id = found.st_dev, found.st_ino
        return self._data_folder_id


def _ancestor_identities(fd: int) -> list[tuple[int, int]]:
    """Return the identities of an open folder and all its parents."""
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
