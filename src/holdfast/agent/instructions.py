"""Instructions for models: the agent's own, the AGENTS.md of its workspace, and those for titles."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.domain.limits import GUIDE_BYTES_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.models.completion import complete
from holdfast.models.ports import Model
from holdfast.tools.arguments import ToolError
from holdfast.tools.files.workspace import open_walk
from holdfast.tools.sandbox.protected_paths import ProtectedPaths

INSTRUCTIONS = """\
You are an assistant that works on the user's own machine, through tools. Each conversation has its own
workspace: a folder that your tools start in and that stays between messages. Paths are relative to it.

Use a tool when it gives a better answer than guessing, and look before you change anything. A call may be put
to the user first; if it is not allowed, respect that and say what you would have done. If the outcome of a
call is unknown, find out what happened before you repeat it. Where the work cannot go on without what only
the user knows or may decide, ask with `ask_user`, with choices where you can name them; never ask what you
can find out yourself.

Be brief: answer first, explain only what is needed. Say plainly when something failed or you are not sure."""
MEMORY_INSTRUCTIONS = """\


Unless the user keeps this conversation out of memory, what is said is remembered for later ones by itself;
`remember` is for what they ask you to remember, and for what clearly must not be missed. Notes from earlier
conversations may stand before a message, and `recall` looks for more of them: they may be outdated, and what
the user says now counts for more."""
"""Follows INSTRUCTIONS if the agent has a memory."""
TITLE_INSTRUCTIONS = """\
Give the conversation below a title of two to six words, in its own language. \
Answer with the title alone: no quotation marks, no full stop."""
TITLE_S_MAX = 30.0
_CHARS_MAX = 4_000
_TITLE_CHARS_MAX = 300
GUIDE_HEADING = "\n\n# What AGENTS.md in the workspace says\n\n"
TRUNCATED_NOTE = f"\n\n(The file goes on; only its first {GUIDE_BYTES_MAX:,} bytes are shown here.)"
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
ReadGuide = Callable[[Path], Awaitable[str]]
"""Return the guide of a workspace; empty if it has none. Never raises."""


class TitleGenerator:
    """Ask a model for a title. Raises a HoldfastError if it gives none."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def __call__(self, text: str) -> str:
        return await complete(
            self._model, TITLE_INSTRUCTIONS, text[:_CHARS_MAX], TITLE_S_MAX, _TITLE_CHARS_MAX
        )


FILE_NAME = "AGENTS.md"


async def no_guide(workspace: Path) -> str:
    return ""


class WorkspaceGuide:
    """Read AGENTS.md anew for every run. Its text goes through `mask`: the run stores it."""

    def __init__(self, protected_paths: ProtectedPaths, mask: MaskFunction = no_mask) -> None:
        self._protected_paths = protected_paths
        self._mask = mask

    async def __call__(self, workspace: Path) -> str:
        return self._mask(await asyncio.to_thread(self._read, workspace))

    def _read(self, workspace: Path) -> str:
        try:
            # Most workspaces have no guide, and one that does not exist yet must not be created here.
            (workspace / FILE_NAME).lstat()
            with open_walk(workspace, FILE_NAME, self._protected_paths) as walk:
                name = walk.open_parent(FILE_NAME)
                return _text(os.open(name, _OPEN_FLAGS, dir_fd=walk.folder)) if name else ""
        except (OSError, ToolError, ValueError):
            # A guide is optional: without a readable one, the run continues.
            return ""


def _text(fd: int) -> str:
    """Return the beginning of a regular file; empty for anything else."""
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return ""
        body = file.read(GUIDE_BYTES_MAX + 1)
    if b"\0" in body:
        return ""
    text = body[:GUIDE_BYTES_MAX].decode("utf-8", "replace").removeprefix("\ufeff").strip()
    return text + TRUNCATED_NOTE if len(body) > GUIDE_BYTES_MAX else text
