"""The data folder, which no tool may reach into; a conversation's own workspace in it is the exception."""

import os
from pathlib import Path

from holdfast.agent.tools.arguments import Refused

WORKSPACES = "workspaces"
"""Where in the data folder the workspaces lie that the server made itself."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Vault:
    """Knows the data folder by what it is and not by its name, so that no link or mount leads around."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.abspath(folder))  # noqa: PTH100
        self._known: tuple[int, int] | None = None

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
        """Raises Refused when the open folder lies in the data folder and was not made for a conversation."""
        if Path(os.path.abspath(workspace)).parent == self._folder / WORKSPACES:  # noqa: PTH100
            return
        for folder in _upwards(opened):
            if folder == self._identity():
                raise Refused("the workspace lies in the server's own folder, which no tool may use")

    def is_at(self, opened: int) -> bool:
        """Whether the open folder is the data folder."""
        return _identity_of(opened) == self._identity()

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


def _identity_of(opened: int) -> tuple[int, int]:
    found = os.fstat(opened)
    return found.st_dev, found.st_ino
