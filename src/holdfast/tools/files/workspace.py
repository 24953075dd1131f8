"""The way into a session's workspace, and never out of it.

A path is walked one name at a time from the open root, each folder opened relative to the one before without
following links. A link is read and its target walked the same way, so that one that stays inside works; `..`
goes back along the folders that are open. Whoever swaps a name for a link meanwhile gains nothing: the link
is not followed. The data folder and the system's own are not entered even where they lie inside. What this
cannot see: a hard link to a file outside, and a mount inside.
"""

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from holdfast.domain.limits import PATH_CHARS_MAX, PATH_DEPTH_MAX, PATH_STEPS_MAX
from holdfast.tools.arguments import Refused
from holdfast.tools.sandbox.protected_paths import Vault, make_workspace

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SENTENCES = (
    (errno.ENOENT, "there is no {path}"),
    (errno.ELOOP, "{path} became a link while it was being opened"),
    (errno.ENOTDIR, "part of {path} is not a folder"),
    (errno.EISDIR, "{path} is a folder"),
    (errno.EACCES, "there is no permission for {path}"),
    (errno.EPERM, "there is no permission for {path}"),
    (errno.ENAMETOOLONG, "{path} has a name that is too long"),
    (errno.ENOSPC, "the disk is full"),
    (errno.EDQUOT, "the disk quota is used up"),
    (errno.EROFS, "the disk of {path} is read-only"),
)


class Walk:
    """A way down from the root, made if it may be `new`: one open folder for each step. Must be closed."""

    def __init__(self, workspace: Path, vault: Vault, new: bool = True) -> None:
        if new:
            make_workspace(workspace)
        self._roots = (PurePosixPath(os.path.abspath(workspace)), PurePosixPath(workspace.resolve()))  # noqa: PTH100
        self._vault = vault
        self._folders = [os.open(workspace, _FOLDER)]
        self._trail: list[str] = []
        try:
            vault.admit(workspace, self.folder)
        except BaseException:
            self.close()
            raise

    @property
    def folder(self) -> int:
        """The folder that the walk has come to, as an open file descriptor."""
        return self._folders[-1]

    @property
    def root(self) -> int:
        """The workspace itself."""
        return self._folders[0]

    def path_of(self, name: str) -> str:
        """Where something in this folder lies, from the root and without links."""
        return "/".join((*self._trail, name))

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def go(self, path: str, make_folders: bool = False) -> str:
        """Go to the folder that holds what `path` names; its name there, or nothing if it is that folder.

        The name may be missing, and may become a link meanwhile: open it without following. Raises Refused.
        """
        waiting = deque(self._names(path))
        for _ in range(PATH_STEPS_MAX):
            if not waiting:
                return ""
            name = waiting.popleft()
            if name == "..":
                self._back(path)
            elif (target := self._target(name)) is not None:
                names = self._names(target, path)
                if target.startswith("/"):
                    while len(self._folders) > 1:
                        self.leave()
                waiting.extendleft(reversed(names))
            elif waiting:
                self._enter(name, make_folders, path)
            else:
                return name
        raise Refused(f"{shown(path)} has too many steps or its links go in circles")

    def enter(self, name: str) -> None:
        """Go into a folder of this one, which must not be a link."""
        self._enter(name, False, name)

    def leave(self) -> None:
        """Go back from a folder that was entered."""
        assert len(self._folders) > 1, "the walk is at its root"
        os.close(self._folders.pop())
        self._trail.pop()

    def _names(self, path: str, asked: str = "") -> list[str]:
        """The steps from the root (of an absolute path) or from here (of another)."""
        if "\0" in path or len(path) > PATH_CHARS_MAX:
            raise Refused(f"a path holds no NUL and has at most {PATH_CHARS_MAX} characters")
        if not path.startswith("/"):
            return [name for name in path.split("/") if name not in ("", ".")]
        absolute = PurePosixPath("/" + path.lstrip("/"))
        for root in self._roots:
            if absolute.is_relative_to(root):
                return list(absolute.relative_to(root).parts)
        raise _outside(asked or path)

    def _back(self, path: str) -> None:
        if len(self._folders) == 1:
            raise _outside(path)
        self.leave()

    def _target(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _enter(self, name: str, make: bool, path: str) -> None:
        if len(self._folders) > PATH_DEPTH_MAX:
            raise Refused(f"{shown(path)} is more than {PATH_DEPTH_MAX} folders deep")
        try:
            opened = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.folder)
            opened = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)
        self._folders.append(opened)
        self._trail.append(name)
        if whose := self._vault.closed(opened):
            self.leave()
            raise Refused(f"{shown(path)} is {whose}, which no tool may use")


@contextmanager
def walking(workspace: Path, path: str, vault: Vault, new: bool = True) -> Iterator[Walk]:
    """A walk for one call, in a workspace that is made if it may be `new`. Raises Refused.

    What the system says of `path` becomes a sentence.
    """
    try:
        walk = Walk(workspace, vault, new)
        try:
            yield walk
        finally:
            walk.close()
    except OSError as error:
        sentences = dict(_SENTENCES)
        sentence = sentences.get(error.errno or 0, f"{{path}}: {error.strerror or error}")
        raise Refused(sentence.format(path=shown(path))) from error
    except UnicodeError as error:
        raise Refused("a path must be text that the file system can hold") from error


def shown(path: str) -> str:
    """A path for people and models to read: what cannot be printed is written as an escape."""
    plain = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "`" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain) + "`"


def _outside(path: str) -> Refused:
    return Refused(f"{shown(path)} is outside the workspace")
