"""Putting files of a workspace back as they were, for a person; not a tool."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from holdfast.aio.finish import see_through
from holdfast.domain.decisions.file_changes import PutBack, Restored
from holdfast.tools.arguments import Refused
from holdfast.tools.files.atomic_replace import digest_of, in_turn, look, remove, replace
from holdfast.tools.files.workspace import Walk, walking
from holdfast.tools.sandbox.protected_paths import Vault

_CHANGED = "it was changed since"
_GONE = "it is no longer there"
_NO_FOLDER = "the folder that the run worked in is no longer there"
_LOOKS = 2
"""Whoever puts the same file back at the same time is met once."""


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
