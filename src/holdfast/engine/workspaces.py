"""The folders that sessions' tools work in: one of its own for each, unless a person chose another."""

import asyncio
import shutil
from contextlib import suppress
from pathlib import Path

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.ids import SessionId, is_id
from holdfast.store.ports import Store

FOLDER = "workspaces"
OF_SYSTEM = (Path("/proc"), Path("/sys"), Path("/dev"))
"""What lies there are no files: the state of the system, its processes, its devices."""


def workspace_of(folder: Path, session_id: SessionId, chosen: str) -> Path:
    """Where a session's tools work. A folder in the data folder or of the system itself cannot be chosen;
    its own is used then."""
    own = folder / FOLDER / session_id
    is_closed = any(lies_in(each, Path(chosen)) for each in (folder, *OF_SYSTEM))
    return Path(chosen) if chosen and not is_closed else own


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
    await asyncio.to_thread(_take_over, folder / FOLDER / old, folder / FOLDER / new)


def _take_over(old: Path, new: Path) -> None:
    with suppress(OSError):
        if not new.exists():
            old.rename(new)


async def clear_away(store: Store, folder: Path) -> int:
    """Remove the folders that were made for sessions that are no more; returns how many.

    A folder that a person chose lies elsewhere and is theirs.
    """
    removed = 0
    for path in await asyncio.to_thread(_made, folder / FOLDER):
        try:
            await store.head(SessionId(path.name))
        except NoSuchSession:
            await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
            removed += 1
    return removed


def _made(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if is_id(path.name)] if folder.is_dir() else []
