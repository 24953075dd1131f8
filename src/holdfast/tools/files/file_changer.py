"""Change one file for a call exactly once, with a diff, so that a person can restore it.

Before it replaces a file, a call writes a durable note to the data folder with the old and the new content.
A call that runs again after a crash reads its note and so knows whether it had replaced the file: then it
only builds its result again. The call removes the note once its result is durable.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from holdfast.aio.finish import run_to_completion
from holdfast.domain.decisions.file_changes import FileRestore, FileRestoreResult
from holdfast.domain.diffs import unified_diff
from holdfast.domain.events.parts import Change
from holdfast.domain.ids import CallId, is_id
from holdfast.domain.limits import CHANGE_NOTE_MS_MAX, CHANGE_WAIT_MS_MAX
from holdfast.tools.arguments import ToolError
from holdfast.tools.files.atomic_replace import (
    FileSnapshot,
    FolderLockTimeout,
    digest_of,
    read_snapshot,
    remove_file,
    replace_file,
    retry_while_locked,
)
from holdfast.tools.files.workspace import WorkspaceWalk, open_walk, quote_path
from holdfast.tools.ports import ToolRun
from holdfast.tools.sandbox.protected_paths import ProtectedPaths

_TRIES_MAX = 8
"""Enough for several calls that change one file at once; after these the call fails."""
_SUFFIX = ".change"
ComputeContent = Callable[[FileSnapshot | None], bytes]
"""Compute the new content from the current file, or from None without one. Raises ToolError."""
_RESTORE_TRIES = 2
"""The first try fails if another process restores the same file at the same time; the second succeeds."""


class FileChangeResult(msgspec.Struct, frozen=True):
    """The outcome of a change: whether the file existed, its new content, and the change to show."""

    existed: bool
    after: bytes
    change: Change


class _ChangeNote(msgspec.Struct, frozen=True):
    """The change that a call is about to make; a file that `existed` without `before` was too large."""

    path: str
    after: str
    existed: bool
    before: bytes | None


class _ChangePlan(msgspec.Struct, frozen=True):
    """The current file and its new content; `is_done` if an earlier run of the call replaced it."""

    path: str
    snapshot: FileSnapshot | None
    existed: bool
    before: bytes | None
    after: bytes
    is_done: bool = False


class FileChanger:
    """Change files of workspaces, with notes in the data folder, `folder`.

    Waits at most `wait_ms_max` for the lock of a file's folder.
    """

    def __init__(
        self, folder: Path, protected_paths: ProtectedPaths, wait_ms_max: int = CHANGE_WAIT_MS_MAX
    ) -> None:
        self._notes = folder / "calls"
        self._protected_paths = protected_paths
        self._wait_ms_max = wait_ms_max

    async def apply(
        self, call: ToolRun, path: str, compute: ComputeContent, is_exact: bool, create_folders: bool
    ) -> FileChangeResult:
        """Replace the file's content by what `compute` returns. Raises ToolError.

        With `is_exact`, a call that runs again fails if the file has neither the old nor the new content of
        the first run: nobody knows then whether that run had replaced it.
        """
        return await run_to_completion(self._apply(call, path, compute, is_exact, create_folders))

    async def preflight(
        self, workspace: Path, path: str, compute: ComputeContent, create_folders: bool
    ) -> None:
        """Raise ToolError if `apply` would fail in the current state. Changes nothing."""
        await asyncio.to_thread(self._preflight, workspace, path, compute, create_folders)

    def discard_note(self, call_id: CallId) -> None:
        """Remove a call's note, once its result is durable."""
        with suppress(OSError):
            self._note_path(call_id).unlink()

    async def _apply(
        self, call: ToolRun, path: str, compute: ComputeContent, is_exact: bool, create_folders: bool
    ) -> FileChangeResult:
        for attempt in range(_TRIES_MAX):
            # After the first attempt the note is from this run, so it tells nothing new.
            must_match_note = is_exact and attempt == 0
            plan = await asyncio.to_thread(self._plan, call, path, compute, must_match_note, create_folders)
            change = await self._build_change(call, plan)
            # A whole-file write finally overwrites any version, and then the old content is unknown.
            overwrite = not is_exact and attempt == _TRIES_MAX - 1
            if plan.is_done:
                return FileChangeResult(plan.existed, plan.after, change)
            if await self._try_write(call, path, plan, create_folders, overwrite):
                change = self._change_without_content(call, plan) if overwrite else change
                return FileChangeResult(plan.existed, plan.after, change)
        self.discard_note(call.call_id)  # The call changed nothing.
        raise ToolError(f"{quote_path(path)} is being changed by somebody else; nothing was done to it")

    def _preflight(self, workspace: Path, path: str, compute: ComputeContent, create_folders: bool) -> None:
        try:
            with open_walk(workspace, path, self._protected_paths, create=False) as walk:
                compute(self._read_target(walk, path, False)[0])
        except ToolError as error:
            is_missing = isinstance(error.__cause__, FileNotFoundError)
            if not (create_folders and is_missing):
                raise

    def _plan(
        self, call: ToolRun, path: str, compute: ComputeContent, must_match_note: bool, create_folders: bool
    ) -> _ChangePlan:
        with open_walk(call.workspace, path, self._protected_paths) as walk:
            snapshot, real = self._read_target(walk, path, create_folders)
        content = snapshot.content if snapshot is not None else None
        note = self._read_note(call.call_id)
        if note is not None and note.path == real:
            if content is not None and digest_of(content) == note.after:
                return _ChangePlan(real, snapshot, note.existed, note.before, content, is_done=True)
            is_untouched = (snapshot is not None) == note.existed and content == note.before
            if must_match_note and not is_untouched:
                raise ToolError(
                    f"{quote_path(path)} was changed by somebody after the server stopped during this call;"
                    " whether the call had been carried out is not known, so look at the file"
                )
        return _ChangePlan(real, snapshot, snapshot is not None, content, compute(snapshot))

    def _read_target(
        self, walk: WorkspaceWalk, path: str, create_folders: bool
    ) -> tuple[FileSnapshot | None, str]:
        """Return the file at `path` and its real path. Raises ToolError, OSError, UnicodeError."""
        name = walk.open_parent(path, create_folders)
        if not name:
            raise ToolError(f"{quote_path(path)} is a folder")
        snapshot, real = read_snapshot(name, walk.folder, path), walk.path_for(name)
        real.encode()  # The note stores the path as text, which a link's target may not be.
        return snapshot, real

    async def _try_write(
        self, call: ToolRun, path: str, plan: _ChangePlan, create_folders: bool, overwrite: bool
    ) -> bool:
        operation = partial(self._write_locked, call, path, plan, create_folders, overwrite)
        try:
            return await retry_while_locked(path, operation, self._wait_ms_max)
        except FolderLockTimeout:
            self.discard_note(call.call_id)  # The call changed nothing.
            raise

    def _write_locked(
        self, call: ToolRun, path: str, plan: _ChangePlan, create_folders: bool, overwrite: bool
    ) -> bool:
        with open_walk(call.workspace, path, self._protected_paths) as walk:
            name = walk.open_parent(path, create_folders)
            if not name or walk.path_for(name) != plan.path:
                return False
            note = _ChangeNote(plan.path, digest_of(plan.after), plan.existed, plan.before)
            self._write_note(call.call_id, note)
            return replace_file(name, walk.folder, path, plan.snapshot, plan.after, overwrite)

    async def _build_change(self, call: ToolRun, plan: _ChangePlan) -> Change:
        if plan.existed and plan.before is None:
            return self._change_without_content(call, plan)
        diff = await asyncio.to_thread(unified_diff, plan.path, plan.before, plan.after)
        before = await call.keep(plan.before) if plan.before is not None else None
        after = await call.keep(plan.after)
        is_stored = after is not None and (before is not None or not plan.existed)
        blobs = (before, after) if is_stored else (None, None)
        workspace = self._protected_paths.chosen_path(call.workspace)
        return Change(plan.path, *blobs, diff.text, diff.added, diff.removed, is_stored, workspace)

    def _change_without_content(self, call: ToolRun, plan: _ChangePlan) -> Change:
        return Change(plan.path, kept=False, workspace=self._protected_paths.chosen_path(call.workspace))

    def _note_path(self, call_id: CallId) -> Path:
        assert is_id(call_id), f"{call_id!r} is not an id"
        return self._notes / f"{call_id}{_SUFFIX}"

    def _read_note(self, call_id: CallId) -> _ChangeNote | None:
        try:
            return msgspec.msgpack.decode(self._note_path(call_id).read_bytes(), type=_ChangeNote)
        except (FileNotFoundError, msgspec.DecodeError):
            return None  # A half-written note means that the call had not yet replaced the file.

    def _write_note(self, call_id: CallId, note: _ChangeNote) -> None:
        self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in self._outdated_notes():
            with suppress(OSError):
                old.unlink()
        path = self._note_path(call_id)
        with open(path, "wb", opener=partial(os.open, mode=0o600)) as file:
            file.write(msgspec.msgpack.encode(note))
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self._notes, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _outdated_notes(self) -> Iterator[Path]:
        cutoff_s = time.time() - CHANGE_NOTE_MS_MAX / 1000
        for path in self._notes.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                if path.stat().st_mtime < cutoff_s:
                    yield path


_CHANGED = "it was changed since"
_GONE = "it is no longer there"
_NO_FOLDER = "the folder that the run worked in is no longer there"


class WorkspaceFileRestorer:
    """Restore files, and only inside a workspace, as tools do."""

    def __init__(self, protected_paths: ProtectedPaths) -> None:
        self._protected_paths = protected_paths

    async def restore(
        self, files: Sequence[FileRestore], read: Callable[[str], Awaitable[bytes]]
    ) -> FileRestoreResult:
        """Restore all files, or none if one has neither its old content nor the run's content."""
        return await run_to_completion(self._restore(files, read))

    async def _restore(
        self, files: Sequence[FileRestore], read: Callable[[str], Awaitable[bytes]]
    ) -> FileRestoreResult:
        checked = [(file.path, await self._restore_one(file, None)) for file in files]
        refused = tuple((path, reason) for path, reason in checked if reason)
        if refused:
            return FileRestoreResult((), refused)
        # Each file is checked again, so that a change made meanwhile is not lost.
        done: list[tuple[str, str]] = []
        for file in files:
            content = await read(file.before) if file.before is not None else b""
            done.append((file.path, await self._restore_one(file, content)))
        return FileRestoreResult(
            tuple(path for path, reason in done if not reason),
            tuple((path, reason) for path, reason in done if reason),
        )

    async def _restore_one(self, file: FileRestore, content: bytes | None) -> str:
        """Restore a file, or only check it without `content`, and return the reason for a failure."""
        try:
            for _ in range(_RESTORE_TRIES):
                reason = await retry_while_locked(
                    file.path, partial(self._restore_in_workspace, file, content)
                )
                if not reason:
                    break
            return reason
        except ToolError as error:
            return str(error)

    def _restore_in_workspace(self, file: FileRestore, content: bytes | None) -> str:
        # Not created here: in an empty workspace, every file that a run made would seem removed already.
        if not file.workspace.is_dir():
            return _NO_FOLDER
        with open_walk(file.workspace, file.path, self._protected_paths, create=False) as walk:
            return _restore_file(walk, file, content)


def _restore_file(walk: WorkspaceWalk, file: FileRestore, content: bytes | None) -> str:
    try:
        name = walk.open_parent(file.path)
    except FileNotFoundError:
        # A parent folder is gone; that is the right state for a file that did not exist before.
        return "" if file.before is None else _GONE
    if not name or walk.path_for(name) != file.path:
        return "a link is in its way"
    snapshot = read_snapshot(name, walk.folder, file.path)
    digest = digest_of(snapshot.content) if snapshot is not None and snapshot.content is not None else None
    if digest == file.before and (snapshot is None) == (file.before is None):
        return ""
    if digest != file.after or (snapshot is None) != (file.after is None):
        return _GONE if snapshot is None else _CHANGED
    if content is None:
        return ""
    if file.before is None:
        return "" if remove_file(name, walk.folder, file.path, snapshot) else _CHANGED
    return "" if replace_file(name, walk.folder, file.path, snapshot, content) else _CHANGED
