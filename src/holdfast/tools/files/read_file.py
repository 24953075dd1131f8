"""Implement `read_file`: read lines of a text file in the workspace."""

import asyncio
import os
import stat
from functools import partial
from io import BytesIO
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from holdfast.aio.finish import run_to_completion
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId, is_id
from holdfast.domain.limits import READ_FILE_BYTES_MAX, READ_FILE_LINES_MAX, READ_FILE_SCAN_BYTES_MAX
from holdfast.tools.arguments import (
    ToolError,
    argument_error,
    done_result,
    failed_result,
    read_arguments,
    tool_spec,
)
from holdfast.tools.files.workspace import open_walk, quote_path
from holdfast.tools.output import OUTPUT_PREFIX, trim_partial_character
from holdfast.tools.ports import ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import ProtectedPaths

_SNIFF_BYTES = 8_192
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # Opening a pipe must not block the call.


class ReadFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File in the workspace, relative to it or absolute.")]
    offset_lines: Annotated[int, Meta(ge=0, description="Lines to skip first.")] = 0
    limit_lines: Annotated[int, Meta(ge=1, le=READ_FILE_LINES_MAX, description="Lines to read.")] = (
        READ_FILE_LINES_MAX
    )


class LineRange(msgspec.Struct):
    """Whole lines of a file, or the beginning of one that is too long."""

    body: bytes = b""
    lines: int = 0
    is_cut: bool = False
    """True if the last line is incomplete."""
    has_more: bool = False
    """True if the file has more text."""


class ReadFileTool:
    spec = tool_spec(
        "read_file",
        f"Read a text file of the workspace, or long output of an earlier call as {OUTPUT_PREFIX}ID. Gives at"
        f" most {READ_FILE_LINES_MAX} lines and {READ_FILE_BYTES_MAX} bytes; the first line says so when"
        " there is more.",
        ReadFileArguments,
    )
    effect: Effect = "pure"
    needs_approval = False

    def __init__(self, protected_paths: ProtectedPaths) -> None:
        self._protected_paths = protected_paths

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, partial(read_arguments, shape=ReadFileArguments))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = read_arguments(call.arguments, ReadFileArguments)
            if arguments.path.startswith(OUTPUT_PREFIX):
                output = await _call_output(call, arguments.path)
                return done_result(
                    await run_to_completion(asyncio.to_thread(_read_output, output, arguments))
                )
            return done_result(
                await run_to_completion(
                    asyncio.to_thread(_read_workspace_file, call, arguments, self._protected_paths)
                )
            )
        except ToolError as error:
            return failed_result(error)

    async def is_finished(self, call_id: CallId) -> bool:
        return True  # The call runs inside the server process.


async def _call_output(call: ToolRun, path: str) -> bytes:
    call_id = path.removeprefix(OUTPUT_PREFIX)
    output = await call.read_output(CallId(call_id)) if is_id(call_id) else None
    if output is None:
        raise ToolError(f"there is no {quote_path(path)}: only output that was too long to be shown is kept")
    return output


def _read_output(output: bytes, arguments: ReadFileArguments) -> str:
    file = BytesIO(output)
    skipped = _skip_lines(file, arguments)
    return _format_lines(_read_lines(file, arguments.limit_lines), skipped, len(output))


def _read_workspace_file(call: ToolRun, arguments: ReadFileArguments, protected_paths: ProtectedPaths) -> str:
    path = arguments.path
    with open_walk(call.workspace, path, protected_paths) as walk:
        name = walk.open_parent(path)
        if not name:
            raise ToolError(f"{quote_path(path)} is a folder; list_files shows what is in it")
        with _open(name, walk.folder, path) as file:
            size = os.fstat(file.fileno()).st_size
            if b"\0" in file.read(_SNIFF_BYTES):
                raise ToolError(f"{quote_path(path)} is a binary file of {size:,} bytes, not text")
            file.seek(0)
            skipped = _skip_lines(file, arguments)
            line_range = _read_lines(file, arguments.limit_lines)
    if b"\0" in line_range.body:
        raise ToolError(f"{quote_path(path)} is a binary file of {size:,} bytes, not text")
    return _format_lines(line_range, skipped, size)


def _open(name: str, folder: int, path: str) -> BinaryIO:
    fd = os.open(name, _OPEN, dir_fd=folder)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise ToolError(f"{quote_path(path)} is a folder; list_files shows what is in it")
        if not stat.S_ISREG(mode):
            raise ToolError(f"{quote_path(path)} is not a regular file")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def _skip_lines(file: BinaryIO, arguments: ReadFileArguments) -> int:
    room = READ_FILE_SCAN_BYTES_MAX
    for lines in range(arguments.offset_lines):
        while True:
            piece = file.readline(READ_FILE_BYTES_MAX)
            room -= len(piece)
            if room < 0:
                raise ToolError(
                    f"line {arguments.offset_lines:,} lies beyond the first"
                    f" {READ_FILE_SCAN_BYTES_MAX:,} bytes; use the shell (sed, tail) for it"
                )
            if not piece:
                raise ToolError(f"{quote_path(arguments.path)} has only {lines:,} lines")
            if piece.endswith(b"\n") or len(piece) < READ_FILE_BYTES_MAX:
                break
    return arguments.offset_lines


def _read_lines(file: BinaryIO, lines_max: int) -> LineRange:
    pieces: list[bytes] = []
    room, result = READ_FILE_BYTES_MAX, LineRange()
    while result.lines < lines_max and not result.has_more:
        line = file.readline(room + 1)
        if not line:
            break
        if len(line) <= room:
            pieces.append(line)
            room -= len(line)
            result.lines += 1
        elif pieces:  # The next call begins with this line, so that it is whole if possible.
            result.has_more = True
        else:
            pieces.append(trim_partial_character(line[:room]))
            result.lines, result.is_cut, result.has_more = 1, True, True
    result.has_more = result.has_more or bool(file.read(1))
    result.body = b"".join(pieces)
    return result


def _format_lines(line_range: LineRange, skipped: int, size: int) -> str:
    if not line_range.body:
        return "[nothing follows]" if skipped else "[the file is empty]"
    text = line_range.body.decode("utf-8", "replace")
    notes = []
    if skipped or line_range.has_more:
        last = skipped + line_range.lines
        notes.append(f"lines {skipped + 1}-{last} of a file of {size:,} bytes")
        if line_range.is_cut:
            notes.append(f"line {last} is cut after {len(line_range.body):,} bytes")
        if line_range.has_more:
            notes.append(f"offset_lines={last} reads on")
    if "\ufffd" in text and "\ufffd".encode() not in line_range.body:
        notes.append("not all of it is valid UTF-8")
    return f"[{'; '.join(notes)}]\n{text}" if notes else text
