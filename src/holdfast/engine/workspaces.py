"""The folders that sessions' tools work in: one of its own for each, unless a person chose another."""

import asyncio
import shutil
from collections.abc import Sequence
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
    await asyncio.to_thread(_take_over, folder / FOLDER / old, folder / FOLDER / new)


def _take_over(old: Path, new: Path) -> None:
    with suppress(OSError):
        if not new.exists():
            old.rename(new)


def holder_of(folder: Path, line: Sequence[SessionId]) -> SessionId:
    """Which of a conversation's sessions, each of which went on in the next, has the folder that was made for
    the first; the last, where none has."""
    return next((each for each in line if (folder / FOLDER / each).exists()), line[-1])


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
