"""Implement `list_files`: list a folder of the workspace."""

import asyncio
import os
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.aio.finish import run_to_completion
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import LIST_DEPTH_MAX, LIST_FILES_MAX, LIST_SCAN_MAX
from holdfast.tools.arguments import (
    ToolError,
    argument_error,
    done_result,
    failed_result,
    read_arguments,
    tool_spec,
)
from holdfast.tools.files.workspace import WorkspaceWalk, open_walk, quote_path
from holdfast.tools.ports import ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import ProtectedPaths


class ListFilesArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="Folder in the workspace, relative to it or absolute.")] = "."
    depth: Annotated[int, Meta(ge=1, le=LIST_DEPTH_MAX, description="Levels of folders to show.")] = 1


class ListFilesTool:
    spec = tool_spec(
        "list_files",
        "List a folder of the workspace, hidden files included: folders end in `/`, files have their size,"
        f" links show where they point. At most {LIST_FILES_MAX} entries.",
        ListFilesArguments,
    )
    effect: Effect = "pure"
    needs_approval = False

    def __init__(self, protected_paths: ProtectedPaths) -> None:
        self._protected_paths = protected_paths

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, partial(read_arguments, shape=ListFilesArguments))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = read_arguments(call.arguments, ListFilesArguments)
            return done_result(
                await run_to_completion(
                    asyncio.to_thread(_list_folder, call, arguments, self._protected_paths)
                )
            )
        except ToolError as error:
            return failed_result(error)

    async def is_finished(self, call_id: CallId) -> bool:
        return True  # The call runs inside the server process.


class _FolderListing:
    """Collect entries in the order of their paths, up to the limits."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.notes: list[str] = []
        self._scanned = 0

    def add_folder(self, walk: WorkspaceWalk, prefix: str, depth: int) -> None:
        """Add the entries of the walk's current folder."""
        entries = self._scan(walk.folder)
        for index, entry in enumerate(entries):
            if len(self.lines) >= LIST_FILES_MAX:
                self._note(f"{len(entries) - index:,} more in {quote_path(prefix or '.')}")
                return
            path = prefix + entry.name
            self.lines.append(_entry_line(entry, path, walk.folder))
            if depth > 1 and entry.is_dir(follow_symlinks=False):
                self._descend(walk, entry.name, path + "/", depth - 1)

    def _descend(self, walk: WorkspaceWalk, name: str, path: str, depth: int) -> None:
        try:
            walk.enter(name)
        except (OSError, ToolError):
            self._note(f"{quote_path(path)} cannot be opened")
            return
        self.add_folder(walk, path, depth)
        walk.leave()

    def _scan(self, folder: int) -> list["os.DirEntry[str]"]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if self._scanned >= LIST_SCAN_MAX:
                    self._note(f"more than {LIST_SCAN_MAX:,} names; not all were looked at")
                    break
                self._scanned += 1
                found.append(entry)
        return sorted(found, key=lambda entry: os.fsencode(entry.name))

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def text(self) -> str:
        if not self.lines and not self.notes:
            return "[the folder is empty]"
        return "\n".join(self.lines + [f"[{note}]" for note in self.notes])


def _list_folder(call: ToolRun, arguments: ListFilesArguments, protected_paths: ProtectedPaths) -> str:
    listing = _FolderListing()
    with open_walk(call.workspace, arguments.path, protected_paths) as walk:
        name = walk.open_parent(arguments.path)
        if name:
            walk.enter(name)
        listing.add_folder(walk, "", arguments.depth)
    return listing.text()


def _entry_line(entry: "os.DirEntry[str]", path: str, folder: int) -> str:
    plain = quote_path(path)[1:-1]
    try:
        if entry.is_symlink():
            return f"{plain} -> {quote_path(os.readlink(entry.name, dir_fd=folder))[1:-1]}"
        if entry.is_dir(follow_symlinks=False):
            return f"{plain}/"
        if entry.is_file(follow_symlinks=False):
            return f"{plain}  {entry.stat(follow_symlinks=False).st_size:,} bytes"
    except OSError:
        return f"{plain}  (gone meanwhile)"
    return f"{plain}  (neither a file nor a folder)"
