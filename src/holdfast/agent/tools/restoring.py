"""Putting files of a workspace back as they were, for a person; not a tool."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from holdfast.agent.tools.arguments import Refused
from holdfast.agent.tools.patience import see_through
from holdfast.agent.tools.replacing import Seen, digest_of, is_same, look, replace
from holdfast.agent.tools.vault import Vault
from holdfast.agent.tools.workspace import Walk, walking
from holdfast.domain.file_changes import PutBack, Restored

_CHANGED = "it was changed since"
_GONE = "it is no longer there"


class Restorer:
    """Knows its way as tools do: nothing outside of a workspace is reached."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def put_back(
        self, workspace: Path, files: Sequence[PutBack], read: Callable[[str], Awaitable[bytes]]
    ) -> Restored:
        """Put all of them back, unless one is neither as it was left nor as it was before."""
        return await see_through(self._put_back(workspace, files, read))

    async def _put_back(
        self, workspace: Path, files: Sequence[PutBack], read: Callable[[str], Awaitable[bytes]]
    ) -> Restored:
        looked = [(file.path, await asyncio.to_thread(self._one, workspace, file, None)) for file in files]
        refused = tuple((path, why) for path, why in looked if why)
        if refused:
            return Restored((), refused)
        # Looked at once more as each is replaced: whoever changes one meanwhile keeps what they wrote.
        done: list[tuple[str, str]] = []
        for file in files:
            content = await read(file.before) if file.before is not None else b""
            done.append((file.path, await asyncio.to_thread(self._one, workspace, file, content)))
        return Restored(tuple(path for path, why in done if not why), tuple(each for each in done if each[1]))

    def _one(self, workspace: Path, file: PutBack, content: bytes | None) -> str:
        """Why it was not done; nothing if it was or, without the content, could be."""
        try:
            with walking(workspace, file.path, self._vault) as walk:
                return _restored(walk, file, content)
        except Refused as refusal:
            return str(refusal)


def _restored(walk: Walk, file: PutBack, content: bytes | None) -> str:
    name = walk.go(file.path)
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
        return "" if _removed(name, walk.folder, file.path, seen) else _CHANGED
    return "" if replace(name, walk.folder, file.path, seen, content) else _CHANGED


def _removed(name: str, folder: int, path: str, seen: Seen | None) -> bool:
    if not is_same(look(name, folder, path), seen):
        return False
    os.unlink(name, dir_fd=folder)
    os.fsync(folder)
    return True
