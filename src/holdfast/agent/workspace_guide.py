"""What a folder says to whoever works in it: its AGENTS.md, told to the agent beside its instructions."""

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.domain.limits import GUIDE_BYTES_MAX
from holdfast.domain.secrets import Masking, identity
from holdfast.tools.arguments import Refused
from holdfast.tools.files.workspace import walking
from holdfast.tools.sandbox.protected_paths import Vault

FILE_NAME = "AGENTS.md"
GUIDE_HEADING = "\n\n# What AGENTS.md in the workspace says\n\n"
CUT_OFF = f"\n\n(The file goes on; only its first {GUIDE_BYTES_MAX:,} bytes are shown here.)"
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Guide = Callable[[Path], Awaitable[str]]
"""What is to be told of a workspace; nothing where it says nothing. Never raises."""


async def no_guide(workspace: Path) -> str:
    return ""


class WorkspaceGuide:
    """Reads it anew for every run. What it says goes through `mask`: it is kept with the run."""

    def __init__(self, vault: Vault, mask: Masking = identity) -> None:
        self._vault = vault
        self._mask = mask

    async def __call__(self, workspace: Path) -> str:
        return self._mask(await asyncio.to_thread(self._read, workspace))

    def _read(self, workspace: Path) -> str:
        try:
            # Most have none, and one that is not there yet is made by whoever first needs it.
            (workspace / FILE_NAME).lstat()
            with walking(workspace, FILE_NAME, self._vault) as walk:
                name = walk.go(FILE_NAME)
                return _text(os.open(name, _FILE, dir_fd=walk.folder)) if name else ""
        except (OSError, Refused, ValueError):
            # Whatever keeps it from being read, there is nothing there that could be told.
            return ""


def _text(opened: int) -> str:
    """The beginning of a regular file; nothing of anything else."""
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return ""
        body = file.read(GUIDE_BYTES_MAX + 1)
    if b"\0" in body:
        return ""
    text = body[:GUIDE_BYTES_MAX].decode("utf-8", "replace").removeprefix("\ufeff").strip()
    return text + CUT_OFF if len(body) > GUIDE_BYTES_MAX else text
