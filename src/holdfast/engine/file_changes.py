"""What runs did to files: told, and put back as it was before them.

Only what tools say they changed is known; what a command changed is not.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from holdfast.domain.decisions.file_changes import FilesChanged, NoSuchChange, PutBack, changes_of
from holdfast.domain.diffs import diff_of
from holdfast.domain.errors import NoSuchBlob, NoSuchSession, RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Change
from holdfast.domain.ids import RunId, SessionId
from holdfast.domain.limits import CHANGED_FILES_MAX, SUCCESSORS_MAX
from holdfast.domain.secrets import Masking, identity
from holdfast.domain.state.session_state import Facts, View
from holdfast.engine.ports import Files
from holdfast.engine.workspaces import holder_of, workspace_of
from holdfast.store.ports import Append, Message, Snapshot, Store


class RunChanges:
    """The files that runs changed. `folder` is the data folder; `files` reaches into workspaces."""

    def __init__(self, store: Store, folder: Path, files: Files, mask: Masking = identity) -> None:
        self._store = store
        self._mask = mask
        self._folder = folder
        self._files = files

    async def of(self, run_id: RunId) -> tuple[list[Change], int]:
        """One for each file, from what the run found to what it left, with their differences.

        And how many more there are than CHANGED_FILES_MAX, which are left out.
        """
        _, changes = await self._found(run_id)
        told = [await self._compared(change) for change in changes[:CHANGED_FILES_MAX]]
        return told, len(changes) - len(told)

    async def restore(self, run_id: RunId, paths: Collection[str] | None = None) -> tuple[str, ...]:
        """Put files back as they were before the run: all, or those that are named. Returns them.

        They are those of the folder that the run worked in, wherever its conversation works now. A file that
        is so already counts as put back. Raises NoSuchChange, RunRefused while the run or another one of its
        conversation is worked on, and FilesChanged, where nothing was put back, for files that are not as the
        run left them.
        """
        session_id, changes = await self._found(run_id)
        line = await self._line(session_id)
        await self._check_idle(line, run_id)
        wanted = _chosen(changes, paths)
        lost = [change.path for change in wanted if await self._contents(change) is None]
        if lost:
            raise FilesChanged(paths=_named([(path, "what it held was not kept") for path in lost]))
        holder = await asyncio.to_thread(holder_of, self._folder, line)
        files = [
            PutBack(workspace_of(self._folder, holder, each.workspace), each.path, each.before, each.after)
            for each in wanted
        ]
        done = await self._files.put_back(files, self._store.get_blob)
        if done.restored:
            restored = f.FilesRestored(run_id, done.restored)
            await self._store.append(Append(session_id, (restored,)))
        if done.refused:
            raise FilesChanged(paths=_named(done.refused, done.restored))
        return done.restored

    async def _line(self, session_id: SessionId) -> list[SessionId]:
        """The session and those that it went on in, which have taken its folder over."""
        line = [session_id]
        while (
            len(line) <= SUCCESSORS_MAX and (successor := await self._store.successor(line[-1])) is not None
        ):
            line.append(successor)
        return line

    async def _check_idle(self, line: Sequence[SessionId], run_id: RunId) -> None:
        await self._store.append(Append(line[0], lambda view: _check_idle(view, run_id)))
        for successor in line[1:]:
            with suppress(NoSuchSession):  # Deleted since: nothing works there.
                await self._store.append(Append(successor, lambda view: _check_idle(view, run_id)))

    async def _found(self, run_id: RunId) -> tuple[SessionId, list[Change]]:
        def read(snapshot: Snapshot) -> tuple[SessionId, Sequence[Message]]:
            session_id, run = snapshot.run(run_id)
            return session_id, snapshot.told(session_id, ((run.turn, run.turn),))

        session_id, messages = await self._store.snapshot(read)
        bodies = [
            event.fact for message in messages for event in message.events if event.kind == "tool_settled"
        ]
        settled = [fact for fact in bodies if isinstance(fact, f.ToolSettled) and fact.run_id == run_id]
        return session_id, changes_of(part for fact in settled for part in fact.parts)

    async def _compared(self, change: Change) -> Change:
        contents = await self._contents(change)
        if contents is None:
            return change
        diff = await asyncio.to_thread(diff_of, change.path, *contents)
        # What was kept before a value was known to be secret may hold it.
        return replace(change, diff=self._mask(diff.text), added=diff.added, removed=diff.removed)

    async def _contents(self, change: Change) -> tuple[bytes | None, bytes | None] | None:
        """Before and after; None where it is not known any more what the file held."""
        if not change.kept:
            return None
        try:
            before = await self._store.get_blob(change.before) if change.before else None
            after = await self._store.get_blob(change.after) if change.after else None
        except NoSuchBlob:
            return None
        return before, after


def _check_idle(view: View, run_id: RunId) -> Facts:
    busy = [each for each in view.open_runs() if each.status == "running" or each.id == run_id]
    if busy:
        raise RunRefused(run_id=busy[0].id, status=busy[0].status, verb="have files put back meanwhile")
    return ()


def _chosen(changes: Sequence[Change], paths: Collection[str] | None) -> list[Change]:
    by_path = {change.path: change for change in changes}
    for path in paths or ():
        if path not in by_path:
            raise NoSuchChange(path=path[:200])
    return [change for change in changes if paths is None or change.path in paths]


def _named(refused: Sequence[tuple[str, str]], restored: Sequence[str] = ()) -> str:
    named = ", ".join(f"{path} ({why})" for path, why in refused)
    return named + (f"; except for {', '.join(restored)}, which were" if restored else "")
