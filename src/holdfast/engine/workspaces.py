"""The folders that sessions' tools work in: one of its own for each, unless a person chose another."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import SessionId, is_id
from holdfast.domain.limits import SUCCESSORS_MAX
from holdfast.store.archive import WORKSPACES
from holdfast.store.plain_files import remove_tree
from holdfast.store.ports import DELETED, Store, SweepResult

SYSTEM_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"))
"""What lies there are no files: the state of the system, its processes, its devices."""


def workspace_path(folder: Path, session_id: SessionId, chosen: str) -> Path:
    """Where a session's tools work. A folder in the data folder or of the system itself cannot be chosen;
    its own is used then."""
    own = folder / WORKSPACES / session_id
    return Path(chosen) if chosen and not forbidden_reason(folder, chosen) else own


def workspace_problem(folder: Path, chosen: str) -> str:
    """Why tools cannot work now in what somebody chose, in words after its name; nothing if they can."""
    if "\0" in chosen or not Path(chosen).is_absolute() or not Path(chosen).is_dir():
        return "must be the whole path of a folder that is there"
    return forbidden_reason(folder, chosen)


def forbidden_reason(folder: Path, chosen: str) -> str:
    """Why they never can, by where it lies; `folder` is the server's own."""
    if is_inside(folder, Path(chosen)):
        return "must not lie in the server's own data folder"
    system = next((each for each in SYSTEM_FOLDERS if is_inside(each, Path(chosen))), None)
    return f"must not lie in {system}, which is the system's own" if system is not None else ""


def is_inside(folder: Path, chosen: Path) -> bool:
    """Whether a folder that somebody chose is `folder` or lies in it, links followed.

    So does one that cannot be followed: nobody knows where it leads.
    """
    try:
        return chosen.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return True


async def move_workspace(folder: Path, old: SessionId, new: SessionId) -> None:
    """Have the conversation `new` work in the folder that was made for `old`, which works no longer.

    Does nothing where that was done before, or there is nothing to take over.
    """
    await asyncio.to_thread(_move_folder, folder / WORKSPACES / old, folder / WORKSPACES / new)


def _move_folder(old: Path, new: Path) -> None:
    with suppress(OSError):
        if not new.exists():
            old.rename(new)


def find_workspace_owner(folder: Path, session_ids: Sequence[SessionId]) -> SessionId:
    """Which of a conversation's sessions, each of which went on in the next, has the folder that was made for
    the first; the last, where none has."""
    return next((each for each in session_ids if (folder / WORKSPACES / each).exists()), session_ids[-1])


async def sweep(store: Store, folder: Path) -> SweepResult:
    """Remove what is not needed any more: the folders of deleted sessions, then what the store holds."""
    # In this order: a purge forgets where a deleted conversation went on, which may have the folder now.
    await remove_deleted_workspaces(store, folder)
    return await store.sweep()


async def remove_deleted_workspaces(store: Store, folder: Path) -> int:
    """Remove the folders that were made for sessions whose deletion `store` has recorded; return how many.

    Keep every other folder, including those of sessions unknown to `store`: another backup may hold them. A
    folder that a person chose lies elsewhere and is theirs.
    """
    removed = 0
    for name, deletion in (await store.items(DELETED)).items():
        session_id, own = SessionId(name), folder / WORKSPACES / name
        if is_id(name):
            successor = await _live_successor(store, session_id)
            if successor is not None:
                await move_workspace(folder, session_id, successor)
            if successor is None or (folder / WORKSPACES / successor).exists():
                removed += await _remove(store, own, deletion)
        # Recorded until the purge: a tool that is being stopped may still make the folder anew.
        if not await asyncio.to_thread(_exists, own) and not await store.deleted_session_number(session_id):
            await store.compare_and_swap_item(DELETED, name, deletion, None)
    return removed


async def _live_successor(store: Store, session_id: SessionId) -> SessionId | None:
    """Return the session in which a deleted conversation goes on, if there is one: the folder is its own.

    A server that stopped while the conversation moved on may not have moved the folder.
    """
    for _ in range(SUCCESSORS_MAX):
        successor = await store.successor(session_id)
        if successor is None:
            return None
        with suppress(NoSuchSession):
            await store.head(successor)
            return successor
        session_id = successor
    return None


async def _remove(store: Store, own: Path, deletion: bytes) -> bool:
    """Rename the folder, then remove it, unless its session was created again in the meantime."""
    renamed = _removal_path(own)
    was_there = await asyncio.to_thread(_rename, own, renamed)
    # Asked after the renaming: what is created from now on makes a folder of its own.
    if await store.item(DELETED, own.name) != deletion:
        await asyncio.to_thread(_rename, renamed, own)
        return False
    await asyncio.to_thread(remove_tree, renamed)
    return was_there


def _rename(folder: Path, to: Path) -> bool:
    """Give a folder another name, unless it is gone or that name is taken."""
    with suppress(OSError):
        if os.path.lexists(folder) and not os.path.lexists(to):
            folder.rename(to)
            return True
    return False


def _exists(own: Path) -> bool:
    return os.path.lexists(own) or os.path.lexists(_removal_path(own))


def _removal_path(own: Path) -> Path:
    return own.with_name(f"{own.name}.removed")
