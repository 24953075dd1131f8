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
from holdfast.store.ports import DELETED, Store, Swept

OF_SYSTEM = (Path("/proc"), Path("/sys"), Path("/dev"))
"""What lies there are no files: the state of the system, its processes, its devices."""


def workspace_of(folder: Path, session_id: SessionId, chosen: str) -> Path:
    """Where a session's tools work. A folder in the data folder or of the system itself cannot be chosen;
    its own is used then."""
    own = folder / WORKSPACES / session_id
    return Path(chosen) if chosen and not why_closed(folder, chosen) else own


def why_refused(folder: Path, chosen: str) -> str:
    """Why tools cannot work now in what somebody chose, in words after its name; nothing if they can."""
    if "\0" in chosen or not Path(chosen).is_absolute() or not Path(chosen).is_dir():
        return "must be the whole path of a folder that is there"
    return why_closed(folder, chosen)


def why_closed(folder: Path, chosen: str) -> str:
    """Why they never can, by where it lies; `folder` is the server's own."""
    if lies_in(folder, Path(chosen)):
        return "must not lie in the server's own data folder"
    system = next((each for each in OF_SYSTEM if lies_in(each, Path(chosen))), None)
    return f"must not lie in {system}, which is the system's own" if system is not None else ""


def lies_in(folder: Path, chosen: Path) -> bool:
    """Whether a folder that somebody chose is `folder` or lies in it, links followed.

    So does one that cannot be followed: nobody knows where it leads.
    """
    try:
        return chosen.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return True


async def take_over(folder: Path, old: SessionId, new: SessionId) -> None:
    """Have the conversation `new` work in the folder that was made for `old`, which works no longer.

    Does nothing where that was done before, or there is nothing to take over.
    """
    await asyncio.to_thread(_take_over, folder / WORKSPACES / old, folder / WORKSPACES / new)


def _take_over(old: Path, new: Path) -> None:
    with suppress(OSError):
        if not new.exists():
            old.rename(new)


def holder_of(folder: Path, line: Sequence[SessionId]) -> SessionId:
    """Which of a conversation's sessions, each of which went on in the next, has the folder that was made for
    the first; the last, where none has."""
    return next((each for each in line if (folder / WORKSPACES / each).exists()), line[-1])


async def sweep(store: Store, folder: Path) -> Swept:
    """Remove what is not needed any more: the folders of deleted sessions, then what the store holds."""
    # In this order: a purge forgets where a deleted conversation went on, which may have the folder now.
    await clear_away(store, folder)
    return await store.sweep()


async def clear_away(store: Store, folder: Path) -> int:
    """Remove the folders that were made for sessions whose deletion `store` has recorded; return how many.

    Keep every other folder, including those of sessions unknown to `store`: another backup may hold them. A
    folder that a person chose lies elsewhere and is theirs.
    """
    removed = 0
    for name, deletion in (await store.items(DELETED)).items():
        session_id, own = SessionId(name), folder / WORKSPACES / name
        if is_id(name):
            heir = await _heir(store, session_id)
            if heir is not None:
                await take_over(folder, session_id, heir)
            if heir is None or (folder / WORKSPACES / heir).exists():
                removed += await _remove(store, own, deletion)
        # Recorded until the purge: a tool that is being stopped may still make the folder anew.
        if not await asyncio.to_thread(_is_there, own) and not await store.buried(session_id):
            await store.swap_item(DELETED, name, deletion, None)
    return removed


async def _heir(store: Store, session_id: SessionId) -> SessionId | None:
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
    leaving = _leaving(own)
    was_there = await asyncio.to_thread(_rename, own, leaving)
    # Asked after the renaming: what is created from now on makes a folder of its own.
    if await store.item(DELETED, own.name) != deletion:
        await asyncio.to_thread(_rename, leaving, own)
        return False
    await asyncio.to_thread(remove_tree, leaving)
    return was_there


def _rename(folder: Path, to: Path) -> bool:
    """Give a folder another name, unless it is gone or that name is taken."""
    with suppress(OSError):
        if os.path.lexists(folder) and not os.path.lexists(to):
            folder.rename(to)
            return True
    return False


def _is_there(own: Path) -> bool:
    return os.path.lexists(own) or os.path.lexists(_leaving(own))


def _leaving(own: Path) -> Path:
    return own.with_name(f"{own.name}.removed")
