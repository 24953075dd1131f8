"""List the files that runs changed, and restore them.

The engine knows only the changes that tools report, not those of a command.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from holdfast.domain.decisions.file_changes import FileRestore, FilesChanged, NoSuchChange, merge_changes
from holdfast.domain.diffs import unified_diff
from holdfast.domain.errors import NoSuchBlob, NoSuchSession, RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Change
from holdfast.domain.ids import RunId, SessionId
from holdfast.domain.limits import CHANGED_FILES_MAX, SUCCESSORS_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.engine.ports import WorkspaceFiles
from holdfast.engine.workspaces import find_workspace_owner, workspace_path
from holdfast.store.ports import Append, Snapshot, Store, StoredMessage


class RunFileChanges:
    """The files that runs changed. `folder` is the data folder; `files` accesses workspaces."""

    def __init__(
        self, store: Store, folder: Path, files: WorkspaceFiles, mask: MaskFunction = no_mask
    ) -> None:
        self._store = store
        self._mask = mask
        self._folder = folder
        self._files = files

    async def list_changes(self, run_id: RunId) -> tuple[list[Change], int]:
        """Return one change for each file, from before the run to after it, with its diff.

        Also return how many more changes there are than CHANGED_FILES_MAX, which are left out.
        """
        _, changes = await self._load_changes(run_id)
        shown = [await self._with_diff(change) for change in changes[:CHANGED_FILES_MAX]]
        return shown, len(changes) - len(shown)

    async def restore(self, run_id: RunId, paths: Collection[str] | None = None) -> tuple[str, ...]:
        """Restore files as they were before the run, all or the named ones, and return their paths.

        They are the files of the run's folder, wherever its conversation works now. A file that already has
        its earlier content counts as restored. Raises NoSuchChange; RunRefused while a run of the
        conversation works; and FilesChanged for files that have changed since the run, where it restored
        nothing.
        """
        session_id, changes = await self._load_changes(run_id)
        chain = await self._session_chain(session_id)
        await self._check_idle(chain, run_id)
        selected = _select(changes, paths)
        missing = [change.path for change in selected if await self._contents(change) is None]
        if missing:
            raise FilesChanged(paths=_describe([(path, "what it held was not kept") for path in missing]))
        owner = await asyncio.to_thread(find_workspace_owner, self._folder, chain)
        files = [
            FileRestore(
                workspace_path(self._folder, owner, change.workspace),
                change.path,
                change.before,
                change.after,
            )
            for change in selected
        ]
        result = await self._files.restore(files, self._store.get_blob)
        if result.restored:
            restored = f.FilesRestored(run_id, result.restored)
            await self._store.append(Append(session_id, (restored,)))
        if result.refused:
            raise FilesChanged(paths=_describe(result.refused, result.restored))
        return result.restored

    async def _session_chain(self, session_id: SessionId) -> list[SessionId]:
        """Return the session and its successors, which have taken over its folder."""
        chain = [session_id]
        while (
            len(chain) <= SUCCESSORS_MAX and (successor := await self._store.successor(chain[-1])) is not None
        ):
            chain.append(successor)
        return chain

    async def _check_idle(self, chain: Sequence[SessionId], run_id: RunId) -> None:
        await self._store.append(Append(chain[0], lambda view: _check_idle(view, run_id)))
        for successor in chain[1:]:
            with suppress(NoSuchSession):  # Deleted since: no run works there.
                await self._store.append(Append(successor, lambda view: _check_idle(view, run_id)))

    async def _load_changes(self, run_id: RunId) -> tuple[SessionId, list[Change]]:
        def read(snapshot: Snapshot) -> tuple[SessionId, Sequence[StoredMessage]]:
            session_id, run = snapshot.run(run_id)
            return session_id, snapshot.turn_messages(session_id, ((run.turn, run.turn),))

        session_id, messages = await self._store.snapshot(read)
        bodies = [
            event.fact for message in messages for event in message.events if event.kind == "tool_settled"
        ]
        settled = [fact for fact in bodies if isinstance(fact, f.ToolSettled) and fact.run_id == run_id]
        return session_id, merge_changes(part for fact in settled for part in fact.parts)

    async def _with_diff(self, change: Change) -> Change:
        contents = await self._contents(change)
        if contents is None:
            return change
        diff = await asyncio.to_thread(unified_diff, change.path, *contents)
        # The store may have kept a content before a value in it was known to be secret.
        return replace(change, diff=self._mask(diff.text), added=diff.added, removed=diff.removed)

    async def _contents(self, change: Change) -> tuple[bytes | None, bytes | None] | None:
        """Return the contents before and after, or None if the store does not have both."""
        if not change.kept:
            return None
        try:
            before = await self._store.get_blob(change.before) if change.before else None
            after = await self._store.get_blob(change.after) if change.after else None
        except NoSuchBlob:
            return None
        return before, after


def _check_idle(view: SessionStateView, run_id: RunId) -> Facts:
    busy = [run for run in view.open_runs() if run.status == "running" or run.id == run_id]
    if busy:
        raise RunRefused(run_id=busy[0].id, status=busy[0].status, verb="have files put back meanwhile")
    return ()


def _select(changes: Sequence[Change], paths: Collection[str] | None) -> list[Change]:
    by_path = {change.path: change for change in changes}
    for path in paths or ():
        if path not in by_path:
            raise NoSuchChange(path=path[:200])
    return [change for change in changes if paths is None or change.path in paths]


def _describe(refused: Sequence[tuple[str, str]], restored: Sequence[str] = ()) -> str:
    text = ", ".join(f"{path} ({why})" for path, why in refused)
    return text + (f"; except for {', '.join(restored)}, which were" if restored else "")
