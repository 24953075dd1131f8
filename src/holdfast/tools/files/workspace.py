"""Resolve paths inside a session's workspace, and refuse any that lead outside.

A walk opens one name at a time from the open root, each folder relative to the one before and without
following links. It reads a link and walks its target the same way, so links that stay inside work; `..` goes
back along the open folders. A process that swaps a name for a link meanwhile gains nothing, since the walk
does not follow it. The walk refuses to enter the data folder and system folders even inside a workspace.
It cannot detect a hard link to a file outside, or a mount inside.
"""

import errno
import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from holdfast.domain.limits import PATH_CHARS_MAX, PATH_DEPTH_MAX, PATH_STEPS_MAX
from holdfast.tools.arguments import ToolError
from holdfast.tools.sandbox.protected_paths import ProtectedPaths, make_workspace

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OS_ERROR_SENTENCES = (
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


class WorkspaceWalk:
    """A walk down from the workspace, with one open folder per step. The caller must close it.

    With `create`, it makes a missing workspace.
    """

    def __init__(self, workspace: Path, protected_paths: ProtectedPaths, create: bool = True) -> None:
        if create:
            make_workspace(workspace)
        self._roots = (PurePosixPath(os.path.abspath(workspace)), PurePosixPath(workspace.resolve()))  # noqa: PTH100
        self._protected_paths = protected_paths
        self._folders = [os.open(workspace, _FOLDER)]
        self._path_parts: list[str] = []
        try:
            protected_paths.check_workspace(workspace, self.folder)
        except BaseException:
            self.close()
            raise

    @property
    def folder(self) -> int:
        """The current folder, as an open file descriptor."""
        return self._folders[-1]

    @property
    def root(self) -> int:
        """The workspace, as an open file descriptor."""
        return self._folders[0]

    def path_for(self, name: str) -> str:
        """Return the path of an entry of this folder, relative to the root and without links."""
        return "/".join((*self._path_parts, name))

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def open_parent(self, path: str, create_folders: bool = False) -> str:
        """Go to the parent folder of `path` and return the last name, or an empty text if there is none.

        The name may not exist, and may become a link meanwhile: open it without following links.
        Raises ToolError.
        """
        remaining = deque(self._path_names(path))
        for _ in range(PATH_STEPS_MAX):
            if not remaining:
                return ""
            name = remaining.popleft()
            if name == "..":
                self._go_up(path)
            elif (target := self._link_target(name)) is not None:
                names = self._path_names(target, path)
                if target.startswith("/"):
                    while len(self._folders) > 1:
                        self.leave()
                remaining.extendleft(reversed(names))
            elif remaining:
                self._enter(name, create_folders, path)
            else:
                return name
        raise ToolError(f"{quote_path(path)} has too many steps or its links go in circles")

    def enter(self, name: str) -> None:
        """Enter a subfolder, which must not be a link."""
        self._enter(name, False, name)

    def leave(self) -> None:
        """Return to the parent of the current folder."""
        assert len(self._folders) > 1, "the walk is at its root"
        os.close(self._folders.pop())
        self._path_parts.pop()

    def _path_names(self, path: str, requested: str = "") -> list[str]:
        """Split an absolute path into names below the root, or a relative one into names below here."""
        if "\0" in path or len(path) > PATH_CHARS_MAX:
            raise ToolError(f"a path holds no NUL and has at most {PATH_CHARS_MAX} characters")
        if not path.startswith("/"):
            return [name for name in path.split("/") if name not in ("", ".")]
        absolute = PurePosixPath("/" + path.lstrip("/"))
        for root in self._roots:
            if absolute.is_relative_to(root):
                return list(absolute.relative_to(root).parts)
        raise _outside_error(requested or path)

    def _go_up(self, path: str) -> None:
        if len(self._folders) == 1:
            raise _outside_error(path)
        self.leave()

    def _link_target(self, name: str) -> str | None:
        try:
            return os.readlink(name, dir_fd=self.folder)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def _enter(self, name: str, create: bool, path: str) -> None:
        if len(self._folders) > PATH_DEPTH_MAX:
            raise ToolError(f"{quote_path(path)} is more than {PATH_DEPTH_MAX} folders deep")
        try:
            opened = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)
        except FileNotFoundError:
            if not create:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.folder)
            opened = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.folder)
        self._folders.append(opened)
        self._path_parts.append(name)
        if protected := self._protected_paths.protected_name(opened):
            self.leave()
            raise ToolError(f"{quote_path(path)} is {protected}, which no tool may use")


@contextmanager
def open_walk(
    workspace: Path, path: str, protected_paths: ProtectedPaths, create: bool = True
) -> Iterator[WorkspaceWalk]:
    """Open a walk for one call, and close it afterwards. With `create`, make a missing workspace.

    Raises ToolError, also in place of an OSError or UnicodeError in the body.
    """
    try:
        walk = WorkspaceWalk(workspace, protected_paths, create)
        try:
            yield walk
        finally:
            walk.close()
    except OSError as error:
        sentences = dict(_OS_ERROR_SENTENCES)
        sentence = sentences.get(error.errno or 0, f"{{path}}: {error.strerror or error}")
        raise ToolError(sentence.format(path=quote_path(path))) from error
    except UnicodeError as error:
        raise ToolError("a path must be text that the file system can hold") from error


def quote_path(path: str) -> str:
    """Quote a path for people and models, with escapes for unprintable characters."""
    plain = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "`" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in plain) + "`"


def _outside_error(path: str) -> ToolError:
    return ToolError(f"{quote_path(path)} is outside the workspace")
