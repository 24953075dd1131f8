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

from holdfast.aio.finish import see_through
from holdfast.domain.decisions.file_changes import PutBack, Restored
from holdfast.domain.diffs import diff_of
from holdfast.domain.events.parts import Change
from holdfast.domain.ids import CallId, is_id
from holdfast.domain.limits import CHANGE_NOTE_MS_MAX, CHANGE_WAIT_MS_MAX
from holdfast.tools.arguments import Refused
from holdfast.tools.files.atomic_replace import Seen, StillHeld, digest_of, in_turn, look, remove, replace
from holdfast.tools.files.workspace import Walk, shown, walking
from holdfast.tools.ports import ToolRun
from holdfast.tools.sandbox.protected_paths import Vault

_TRIES_MAX = 8
"""Enough for several calls that change one file at once; who has no turn within these is told so."""
_SUFFIX = ".change"
Make = Callable[[Seen | None], bytes]
"""The new content, from what was found; None is no file. Raises Refused."""
_LOOKS = 2
"""Whoever puts the same file back at the same time is met once."""


class Changed(msgspec.Struct, frozen=True):
    """What became of a file: whether there was one, what it holds now, and the change as it is told."""

    existed: bool
    after: bytes
    change: Change


class _Note(msgspec.Struct, frozen=True):
    """What a call is about to do. `existed` without `before`: it was too large to be noted."""

    path: str
    after: str
    existed: bool
    before: bytes | None


class _Plan(msgspec.Struct, frozen=True):
    """What was found, and what is to be there; `is_done` by an earlier try at the call."""

    path: str
    seen: Seen | None
    existed: bool
    before: bytes | None
    after: bytes
    is_done: bool = False


class Changing:
    """Changes files of workspaces. `folder` is the data folder; the notes lie in it.

    A folder in which others change files is waited for, `wait_ms_max` at most.
    """

    def __init__(self, folder: Path, vault: Vault, wait_ms_max: int = CHANGE_WAIT_MS_MAX) -> None:
        self._notes = folder / "calls"
        self._vault = vault
        self._wait_ms_max = wait_ms_max

    async def apply(
        self, call: ToolRun, path: str, make: Make, is_exact: bool, makes_folders: bool
    ) -> Changed:
        """Replace the file by what `make` makes of it. Raises Refused.

        With `is_exact`, a call that is made again does nothing to a file that is neither as the first try
        found it nor as that would have left it: nobody knows whether it had been done.
        """
        return await see_through(self._apply(call, path, make, is_exact, makes_folders))

    async def foresee(self, workspace: Path, path: str, make: Make, makes_folders: bool) -> None:
        """Look whether the same would be refused as things are now. Raises Refused; changes nothing."""
        await asyncio.to_thread(self._foresee, workspace, path, make, makes_folders)

    def settled(self, call_id: CallId) -> None:
        """The call's result is durable: nobody will ask what it did."""
        with suppress(OSError):
            self._note_of(call_id).unlink()

    async def _apply(
        self, call: ToolRun, path: str, make: Make, is_exact: bool, makes_folders: bool
    ) -> Changed:
        for attempt in range(_TRIES_MAX):
            # After the first attempt the note is our own, and says nothing that we do not know.
            refuses = is_exact and attempt == 0
            plan = await asyncio.to_thread(self._plan, call, path, make, refuses, makes_folders)
            change = await self._told(call, plan)
            # Who writes a whole file has the last word in the end, and then nobody knows what was before.
            is_blind = not is_exact and attempt == _TRIES_MAX - 1
            if plan.is_done:
                return Changed(plan.existed, plan.after, change)
            if await self._carried_out(call, path, plan, makes_folders, is_blind):
                change = self._unkept(call, plan) if is_blind else change
                return Changed(plan.existed, plan.after, change)
        self.settled(call.call_id)  # Nothing was done, so there is nothing to know.
        raise Refused(f"{shown(path)} is being changed by somebody else; nothing was done to it")

    def _foresee(self, workspace: Path, path: str, make: Make, makes_folders: bool) -> None:
        try:
            with walking(workspace, path, self._vault, new=False) as walk:
                make(self._found(walk, path, False)[0])
        except Refused as refusal:
            is_missing = isinstance(refusal.__cause__, FileNotFoundError)
            if not (makes_folders and is_missing):
                raise

    def _plan(self, call: ToolRun, path: str, make: Make, refuses: bool, makes_folders: bool) -> _Plan:
        with walking(call.workspace, path, self._vault) as walk:
            seen, real = self._found(walk, path, makes_folders)
        content = seen.content if seen is not None else None
        note = self._read_note(call.call_id)
        if note is not None and note.path == real:
            if content is not None and digest_of(content) == note.after:
                return _Plan(real, seen, note.existed, note.before, content, is_done=True)
            is_untouched = (seen is not None) == note.existed and content == note.before
            if refuses and not is_untouched:
                raise Refused(
                    f"{shown(path)} was changed by somebody after the server stopped during this call;"
                    " whether the call had been carried out is not known, so look at the file"
                )
        return _Plan(real, seen, seen is not None, content, make(seen))

    def _found(self, walk: Walk, path: str, makes_folders: bool) -> tuple[Seen | None, str]:
        """What is at `path`, and its real path. Raises Refused, OSError, UnicodeError."""
        name = walk.go(path, makes_folders)
        if not name:
            raise Refused(f"{shown(path)} is a folder")
        seen, real = look(name, walk.folder, path), walk.path_of(name)
        real.encode()  # It is written down, so it must be text; where a link leads may be none.
        return seen, real

    async def _carried_out(
        self, call: ToolRun, path: str, plan: _Plan, makes_folders: bool, is_blind: bool
    ) -> bool:
        work = partial(self._carry_out, call, path, plan, makes_folders, is_blind)
        try:
            return await in_turn(path, work, self._wait_ms_max)
        except StillHeld:
            self.settled(call.call_id)  # Nothing was done, so there is nothing to know.
            raise

    def _carry_out(self, call: ToolRun, path: str, plan: _Plan, makes_folders: bool, is_blind: bool) -> bool:
        with walking(call.workspace, path, self._vault) as walk:
            name = walk.go(path, makes_folders)
            if not name or walk.path_of(name) != plan.path:
                return False
            note = _Note(plan.path, digest_of(plan.after), plan.existed, plan.before)
            self._write_note(call.call_id, note)
            return replace(name, walk.folder, path, plan.seen, plan.after, is_blind)

    async def _told(self, call: ToolRun, plan: _Plan) -> Change:
        if plan.existed and plan.before is None:
            return self._unkept(call, plan)
        diff = await asyncio.to_thread(diff_of, plan.path, plan.before, plan.after)
        before = await call.keep(plan.before) if plan.before is not None else None
        after = await call.keep(plan.after)
        kept = after is not None and (before is not None or not plan.existed)
        blobs = (before, after) if kept else (None, None)
        where = self._vault.place_of(call.workspace)
        return Change(plan.path, *blobs, diff.text, diff.added, diff.removed, kept, where)

    def _unkept(self, call: ToolRun, plan: _Plan) -> Change:
        return Change(plan.path, kept=False, workspace=self._vault.place_of(call.workspace))

    # Notes.

    def _note_of(self, call_id: CallId) -> Path:
        assert is_id(call_id), f"{call_id!r} is not an id"
        return self._notes / f"{call_id}{_SUFFIX}"

    def _read_note(self, call_id: CallId) -> _Note | None:
        try:
            return msgspec.msgpack.decode(self._note_of(call_id).read_bytes(), type=_Note)
        except (FileNotFoundError, msgspec.DecodeError):
            return None  # A half of one: nothing was done after it.

    def _write_note(self, call_id: CallId, note: _Note) -> None:
        self._notes.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in self._outdated():
            with suppress(OSError):
                old.unlink()
        path = self._note_of(call_id)
        with open(path, "wb", opener=partial(os.open, mode=0o600)) as file:
            file.write(msgspec.msgpack.encode(note))
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self._notes, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _outdated(self) -> Iterator[Path]:
        before = time.time() - CHANGE_NOTE_MS_MAX / 1000
        for path in self._notes.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                if path.stat().st_mtime < before:
                    yield path


_CHANGED = "it was changed since"
_GONE = "it is no longer there"
_NO_FOLDER = "the folder that the run worked in is no longer there"


class Restorer:
    """Knows its way as tools do: nothing outside of a workspace is reached."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def put_back(self, files: Sequence[PutBack], read: Callable[[str], Awaitable[bytes]]) -> Restored:
        """Put all of them back, unless one is neither as it was left nor as it was before."""
        return await see_through(self._put_back(files, read))

    async def _put_back(self, files: Sequence[PutBack], read: Callable[[str], Awaitable[bytes]]) -> Restored:
        looked = [(file.path, await self._one(file, None)) for file in files]
        refused = tuple((path, why) for path, why in looked if why)
        if refused:
            return Restored((), refused)
        # Looked at once more as each is replaced: whoever changes one meanwhile keeps what they wrote.
        done: list[tuple[str, str]] = []
        for file in files:
            content = await read(file.before) if file.before is not None else b""
            done.append((file.path, await self._one(file, content)))
        return Restored(tuple(path for path, why in done if not why), tuple(each for each in done if each[1]))

    async def _one(self, file: PutBack, content: bytes | None) -> str:
        """Why it was not done; nothing if it was or, without the content, could be."""
        try:
            for _ in range(_LOOKS):
                why = await in_turn(file.path, partial(self._walked, file, content))
                if not why:
                    break
            return why
        except Refused as refusal:
            return str(refusal)

    def _walked(self, file: PutBack, content: bytes | None) -> str:
        # Never made anew: in an empty one, all that a run made would seem to be removed already.
        if not file.workspace.is_dir():
            return _NO_FOLDER
        with walking(file.workspace, file.path, self._vault, new=False) as walk:
            return _restored(walk, file, content)


def _restored(walk: Walk, file: PutBack, content: bytes | None) -> str:
    try:
        name = walk.go(file.path)
    except FileNotFoundError:
        # A folder on the way there is gone, and with it a file that was not there before either.
        return "" if file.before is None else _GONE
    if not name or walk.path_of(name) != file.path:
        return "a link is in its way"
    seen = look(name, walk.folder, file.path)
    now = digest_of(seen.content) if seen is not None and seen.content is not None else None
    if now == file.before and (seen is None) == (file.before is None):
        return ""
    if now != file.after or (seen is None) != (file.after is None):
        return _GONE if seen is None else _CHANGED
    if content is None:
        return ""
    if file.before is None:
        return "" if remove(name, walk.folder, file.path, seen) else _CHANGED
    return "" if replace(name, walk.folder, file.path, seen, content) else _CHANGED
