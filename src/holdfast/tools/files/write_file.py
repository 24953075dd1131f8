"""`write_file`: a whole file in the workspace, made or replaced in one step."""

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.domain.events.facts import Effect
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId
from holdfast.domain.limits import WRITE_FILE_BYTES_MAX
from holdfast.tools.arguments import Refused, failed, flaw_in, read_arguments, spec_of
from holdfast.tools.files.file_changer import Changing
from holdfast.tools.files.workspace import shown
from holdfast.tools.ports import ToolResult, ToolRun


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

    def __init__(self, changing: Changing) -> None:
        self._changing = changing

    def flaw(self, arguments: str) -> str:
        return flaw_in(arguments, _read)

    async def foreseen(self, arguments: str, workspace: Path) -> str:
        try:
            path, content = _read(arguments)
            await self._changing.foresee(workspace, path, lambda before: content, True)
        except Refused as refusal:
            return str(refusal)
        return ""

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            path, content = _read(call.arguments)
            done = await self._changing.apply(
                call, path, lambda before: content, is_exact=False, makes_folders=True
            )
        except Refused as refusal:
            return failed(refusal)
        verb = "replaced" if done.existed else "created"
        said = Text(f"{verb} {shown(path)}, {len(content):,} bytes")
        return ToolResult("done", (said, done.change), partial(self._changing.settled, call.call_id))

    async def is_gone(self, call_id: CallId) -> bool:
        return True  # It lives and dies with its process.


def _read(text: str) -> tuple[str, bytes]:
    """Raises Refused."""
    arguments = read_arguments(text, Arguments)
    content = arguments.content.encode("utf-8")
    if len(content) > WRITE_FILE_BYTES_MAX:
        raise Refused(f"the content is {len(content):,} bytes; write_file takes {WRITE_FILE_BYTES_MAX:,}")
    return arguments.path, content
