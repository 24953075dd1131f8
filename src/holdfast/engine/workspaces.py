"""The folders of sessions' tools: each has its own, unless a person chose another."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import SessionId, is_id
from holdfast.domain.limits import SUCCESSORS_MAX
from holdfast.store.archive import WORKSPACES
from holdfast.store.maintenance import SweepResult
from holdfast.store.plain_files import remove_tree
from holdfast.store.ports import DELETED, Store

SYSTEM_FOLDERS = (Path("/proc"), Path("/sys"), Path("/dev"))
"""Folders with the state of the system, its processes and devices rather than files."""


def workspace_path(folder: Path, session_id: SessionId, chosen: str) -> Path:
    """Return a session's folder: the chosen one if tools may work there, else its own.

    They may not work in the data folder or in a system folder.
    """
    own = folder / WORKSPACES / session_id
    return Path(chosen) if chosen and not forbidden_reason(folder, chosen) else own


def workspace_problem(folder: Path, chosen: str) -> str:
    """Return why tools cannot work in the chosen folder now, without its name; empty if they can."""
    if "\0" in chosen or not Path(chosen).is_absolute() or not Path(chosen).is_dir():
        return "must be the whole path of a folder that is there"
    return forbidden_reason(folder, chosen)


def forbidden_reason(folder: Path, chosen: str) -> str:
    """Return why tools may never work there; `folder` is the data folder."""
    if is_inside(folder, Path(chosen)):
        return "must not lie in the server's own data folder"
    system = next((path for path in SYSTEM_FOLDERS if is_inside(path, Path(chosen))), None)
    return f"must not lie in {system}, which is the system's own" if system is not None else ""


def is_inside(folder: Path, chosen: Path) -> bool:
    """Return whether the folder `chosen` is `folder` or inside it, following links.

    True if its links cannot be followed: it may lead anywhere.
    """
    try:
        return chosen.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return True


async def move_workspace(folder: Path, old: SessionId, new: SessionId) -> None:
    """Give the folder of the session `old`, which works no longer, to the session `new`.

    Does nothing if that was done before, or there is no folder.
    """
    await asyncio.to_thread(_move_folder, folder / WORKSPACES / old, folder / WORKSPACES / new)


def _move_folder(old: Path, new: Path) -> None:
    with suppress(OSError):
        if not new.exists():
            old.rename(new)


def find_workspace_owner(folder: Path, session_ids: Sequence[SessionId]) -> SessionId:
    """Return the session that has the folder of the first one; without a folder, the last.

    Each of the sessions is the successor of the one before it.
    """
    return next((own for own in session_ids if (folder / WORKSPACES / own).exists()), session_ids[-1])


async def sweep(store: Store, folder: Path) -> SweepResult:
    """Remove the folders of deleted sessions, then the store's own leftovers."""
    # In this order: a purge forgets the successor of a deleted conversation, which may have the folder.
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
        # Recorded until the purge: a tool that is being stopped may still create the folder again.
        if not await asyncio.to_thread(_exists, own) and not await store.deleted_session_number(session_id):
            await store.compare_and_swap_item(DELETED, name, deletion, None)
    return removed


async def _live_successor(store: Store, session_id: SessionId) -> SessionId | None:
    """Return the session in which a deleted conversation continues, or None: the folder is its own.

    A server that stopped while the conversation continued may not have moved the folder.
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
    # Read after the renaming: a session that is created from now on makes a folder of its own.
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
