"""Implement `write_file`: create or atomically replace a whole file in the workspace."""

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.domain.events.facts import Effect
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId
from holdfast.domain.limits import WRITE_FILE_BYTES_MAX
from holdfast.tools.arguments import ToolError, argument_error, failed_result, read_arguments, tool_spec
from holdfast.tools.files.file_changer import FileChanger
from holdfast.tools.files.workspace import quote_path
from holdfast.tools.ports import ToolResult, ToolRun


class WriteFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File in the workspace, relative to it or absolute.")]
    content: Annotated[str, Meta(description="The whole text of the file.")]


class WriteFileTool:
    """Write a file; running the call again leaves the same file, unless somebody wrote it in between."""

    spec = tool_spec(
        "write_file",
        "Write a text file of the workspace: makes it, or replaces all of it. Missing folders are made."
        f" At most {WRITE_FILE_BYTES_MAX} bytes.",
        WriteFileArguments,
    )
    effect: Effect = "idempotent"
    needs_approval = True

    def __init__(self, file_changer: FileChanger) -> None:
        self._file_changer = file_changer

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, _read_write_arguments)

    async def preflight(self, arguments: str, workspace: Path) -> str:
        try:
            path, content = _read_write_arguments(arguments)
            await self._file_changer.preflight(workspace, path, lambda before: content, True)
        except ToolError as error:
            return str(error)
        return ""

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            path, content = _read_write_arguments(call.arguments)
            result = await self._file_changer.apply(
                call, path, lambda before: content, is_exact=False, create_folders=True
            )
        except ToolError as error:
            return failed_result(error)
        verb = "replaced" if result.existed else "created"
        text = Text(f"{verb} {quote_path(path)}, {len(content):,} bytes")
        return ToolResult(
            "done", (text, result.change), partial(self._file_changer.discard_note, call.call_id)
        )

    async def is_finished(self, call_id: CallId) -> bool:
        return True  # The call runs inside the server process.


def _read_write_arguments(text: str) -> tuple[str, bytes]:
    arguments = read_arguments(text, WriteFileArguments)
    content = arguments.content.encode("utf-8")
    if len(content) > WRITE_FILE_BYTES_MAX:
        raise ToolError(f"the content is {len(content):,} bytes; write_file takes {WRITE_FILE_BYTES_MAX:,}")
    return arguments.path, content
