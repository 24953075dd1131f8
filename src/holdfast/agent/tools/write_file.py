"""`write_file`: a whole file in the workspace, made or replaced in one step."""

import asyncio
import os
import secrets
import stat
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.agent.ports import ToolResult, ToolRun
from holdfast.agent.tools.arguments import Refused, done, failed, read_arguments, spec_of
from holdfast.agent.tools.patience import see_through
from holdfast.agent.tools.vault import Vault
from holdfast.agent.tools.workspace import shown, walking
from holdfast.domain.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import WRITE_FILE_BYTES_MAX

_OPEN = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File in the workspace, relative to it or absolute.")]
    content: Annotated[str, Meta(description="The whole text of the file.")]


class WriteFile:
    """Writes a file. Doing it again leaves the same file, unless someone else wrote it in between."""

    spec = spec_of(
        "write_file",
        "Write a text file of the workspace: makes it, or replaces all of it. Missing folders are made."
        f" At most {WRITE_FILE_BYTES_MAX} bytes.",
        Arguments,
    )
    effect: Effect = "idempotent"
    asks = True

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = read_arguments(call.arguments, Arguments)
            return done(await see_through(asyncio.to_thread(_write, call, arguments, self._vault)))
        except Refused as refusal:
            return failed(refusal)

    async def is_gone(self, call_id: CallId) -> bool:
        return True  # It lives and dies with its process.


def _write(call: ToolRun, arguments: Arguments, vault: Vault) -> str:
    path, content = arguments.path, arguments.content.encode("utf-8")
    if len(content) > WRITE_FILE_BYTES_MAX:
        raise Refused(f"the content is {len(content):,} bytes; write_file takes {WRITE_FILE_BYTES_MAX:,}")
    with walking(call.workspace, path, vault) as walk:
        name = walk.go(path, make_folders=True)
        if not name:
            raise Refused(f"{shown(path)} is a folder")
        before = _before(name, walk.folder, path)
        # A name of its own each time: a process that was stopped and goes on must not meet a half of ours.
        draft = f".holdfast-{secrets.token_hex(8)}.tmp"
        try:
            _draft(draft, walk.folder, content, before)
            os.rename(draft, name, src_dir_fd=walk.folder, dst_dir_fd=walk.folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=walk.folder)
            raise
        os.fsync(walk.folder)
    return f"{'replaced' if before else 'created'} {shown(path)}, {len(content):,} bytes"


def _before(name: str, folder: int, path: str) -> os.stat_result | None:
    """The file that is there already. Raises Refused for anything that must not be replaced."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise Refused(f"{shown(path)} is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise Refused(f"{shown(path)} is not a regular file")
    if not found.st_mode & 0o222:
        raise Refused(f"{shown(path)} is write-protected")
    return found


def _draft(name: str, folder: int, content: bytes, before: os.stat_result | None) -> None:
    with os.fdopen(os.open(name, _OPEN, 0o666, dir_fd=folder), "wb") as file:
        if before is not None:
            with suppress(PermissionError):  # Another's file in a folder of ours becomes ours.
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
