"""Change one file for a call: once, shown as a diff, and restorable.

Before a file is replaced, a note of it is durable in the data folder: what the file held, and what it is to
hold. A call that was cut off and is made again finds its note, and so knows whether it had been done: then
only its result is made anew. The note goes when the result is durable.
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
"""Enough for several calls that change one file at once; who has no turn within these is told so."""
_SUFFIX = ".change"
ComputeContent = Callable[[FileSnapshot | None], bytes]
"""The new content, from what was found; None is no file. Raises Refused."""
_RESTORE_TRIES = 2
"""Whoever puts the same file back at the same time is met once."""


class FileChangeResult(msgspec.Struct, frozen=True):
    """What became of a file: whether there was one, what it holds now, and the change as it is told."""

    existed: bool
    after: bytes
    change: Change


class _ChangeNote(msgspec.Struct, frozen=True):
    """What a call is about to do. `existed` without `before`: it was too large to be noted."""

    path: str
    after: str
    existed: bool
    before: bytes | None


class _ChangePlan(msgspec.Struct, frozen=True):
    """What was found, and what is to be there; `is_done` by an earlier try at the call."""

    path: str
    snapshot: FileSnapshot | None
    existed: bool
    before: bytes | None
    after: bytes
    is_done: bool = False


class FileChanger:
    """Changes files of workspaces. `folder` is the data folder; the notes lie in it.

    A folder in which others change files is waited for, `wait_ms_max` at most.
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
        """Replace the file by what `make` makes of it. Raises Refused.

        With `is_exact`, a call that is made again does nothing to a file that is neither as the first try
        found it nor as that would have left it: nobody knows whether it had been done.
        """
        return await run_to_completion(self._apply(call, path, compute, is_exact, create_folders))

    async def preflight(
        self, workspace: Path, path: str, compute: ComputeContent, create_folders: bool
    ) -> None:
        """Look whether the same would be refused as things are now. Raises Refused; changes nothing."""
        await asyncio.to_thread(self._preflight, workspace, path, compute, create_folders)

    def discard_note(self, call_id: CallId) -> None:
        """The call's result is durable: nobody will ask what it did."""
        with suppress(OSError):
            self._note_path(call_id).unlink()

    async def _apply(
        self, call: ToolRun, path: str, compute: ComputeContent, is_exact: bool, create_folders: bool
    ) -> FileChangeResult:
        for attempt in range(_TRIES_MAX):
            # After the first attempt the note is our own, and says nothing that we do not know.
            must_match_note = is_exact and attempt == 0
            plan = await asyncio.to_thread(self._plan, call, path, compute, must_match_note, create_folders)
            change = await self._build_change(call, plan)
            # Who writes a whole file has the last word in the end, and then nobody knows what was before.
            overwrite = not is_exact and attempt == _TRIES_MAX - 1
            if plan.is_done:
                return FileChangeResult(plan.existed, plan.after, change)
            if await self._try_write(call, path, plan, create_folders, overwrite):
                change = self._change_without_content(call, plan) if overwrite else change
                return FileChangeResult(plan.existed, plan.after, change)
        self.discard_note(call.call_id)  # Nothing was done, so there is nothing to know.
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
        """What is at `path`, and its real path. Raises Refused, OSError, UnicodeError."""
        name = walk.open_parent(path, create_folders)
        if not name:
            raise ToolError(f"{quote_path(path)} is a folder")
        snapshot, real = read_snapshot(name, walk.folder, path), walk.path_for(name)
        real.encode()  # It is written down, so it must be text; where a link leads may be none.
        return snapshot, real

    async def _try_write(
        self, call: ToolRun, path: str, plan: _ChangePlan, create_folders: bool, overwrite: bool
    ) -> bool:
        operation = partial(self._write_locked, call, path, plan, create_folders, overwrite)
        try:
            return await retry_while_locked(path, operation, self._wait_ms_max)
        except FolderLockTimeout:
            self.discard_note(call.call_id)  # Nothing was done, so there is nothing to know.
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

    # Notes.

    def _note_path(self, call_id: CallId) -> Path:
        assert is_id(call_id), f"{call_id!r} is not an id"
        return self._notes / f"{call_id}{_SUFFIX}"

    def _read_note(self, call_id: CallId) -> _ChangeNote | None:
        try:
            return msgspec.msgpack.decode(self._note_path(call_id).read_bytes(), type=_ChangeNote)
        except (FileNotFoundError, msgspec.DecodeError):
            return None  # A half of one: nothing was done after it.

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
    """Knows its way as tools do: nothing outside of a workspace is reached."""

    def __init__(self, protected_paths: ProtectedPaths) -> None:
        self._protected_paths = protected_paths

    async def restore(
        self, files: Sequence[FileRestore], read: Callable[[str], Awaitable[bytes]]
    ) -> FileRestoreResult:
        """Put all of them back, unless one is neither as it was left nor as it was before."""
        return await run_to_completion(self._restore(files, read))

    async def _restore(
        self, files: Sequence[FileRestore], read: Callable[[str], Awaitable[bytes]]
    ) -> FileRestoreResult:
        checked = [(file.path, await self._restore_one(file, None)) for file in files]
        refused = tuple((path, why) for path, why in checked if why)
        if refused:
            return FileRestoreResult((), refused)
        # Looked at once more as each is replaced: whoever changes one meanwhile keeps what they wrote.
        done: list[tuple[str, str]] = []
        for file in files:
            content = await read(file.before) if file.before is not None else b""
            done.append((file.path, await self._restore_one(file, content)))
        return FileRestoreResult(
            tuple(path for path, why in done if not why), tuple(each for each in done if each[1])
        )

    async def _restore_one(self, file: FileRestore, content: bytes | None) -> str:
        """Why it was not done; nothing if it was or, without the content, could be."""
        try:
            for _ in range(_RESTORE_TRIES):
                why = await retry_while_locked(file.path, partial(self._restore_in_workspace, file, content))
                if not why:
                    break
            return why
        except ToolError as error:
            return str(error)

    def _restore_in_workspace(self, file: FileRestore, content: bytes | None) -> str:
        # Never made anew: in an empty one, all that a run made would seem to be removed already.
        if not file.workspace.is_dir():
            return _NO_FOLDER
        with open_walk(file.workspace, file.path, self._protected_paths, create=False) as walk:
            return _restore_file(walk, file, content)


def _restore_file(walk: WorkspaceWalk, file: FileRestore, content: bytes | None) -> str:
    try:
        name = walk.open_parent(file.path)
    except FileNotFoundError:
        # A folder on the way there is gone, and with it a file that was not there before either.
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
