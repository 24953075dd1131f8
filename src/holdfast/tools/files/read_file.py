"""`read_file`: lines of a text file in the workspace."""

import asyncio
import os
import stat
from functools import partial
from io import BytesIO
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from holdfast.aio.finish import see_through
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId, is_id
from holdfast.domain.limits import READ_FILE_BYTES_MAX, READ_FILE_LINES_MAX, READ_FILE_SCAN_BYTES_MAX
from holdfast.tools.arguments import Refused, done, failed, flaw_in, read_arguments, spec_of
from holdfast.tools.files.workspace import shown, walking
from holdfast.tools.output import OUTPUT, whole_characters
from holdfast.tools.ports import ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import Vault

_SNIFF_BYTES = 8_192
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # A pipe must not hold the call up.


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File in the workspace, relative to it or absolute.")]
    offset_lines: Annotated[int, Meta(ge=0, description="Lines to skip first.")] = 0
    limit_lines: Annotated[int, Meta(ge=1, le=READ_FILE_LINES_MAX, description="Lines to read.")] = (
        READ_FILE_LINES_MAX
    )


class Passage(msgspec.Struct):
    """What was read: whole lines, or the beginning of one that is too long."""

    body: bytes = b""
    lines: int = 0
    is_cut: bool = False
    """The last line goes on."""
    more: bool = False
    """Lines follow."""


class ReadFile:
    """Reads a text file; changes nothing."""

    spec = spec_of(
        "read_file",
        f"Read a text file of the workspace, or long output of an earlier call as {OUTPUT}ID. Gives at most"
        f" {READ_FILE_LINES_MAX} lines and {READ_FILE_BYTES_MAX} bytes; the first line says so when there is"
        " more.",
        Arguments,
    )
    effect: Effect = "pure"
    asks = False

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def flaw(self, arguments: str) -> str:
        return flaw_in(arguments, partial(read_arguments, shape=Arguments))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = read_arguments(call.arguments, Arguments)
            if arguments.path.startswith(OUTPUT):
                output = await _output(call, arguments.path)
                return done(await see_through(asyncio.to_thread(_read_output, output, arguments)))
            return done(await see_through(asyncio.to_thread(_read, call, arguments, self._vault)))
        except Refused as refusal:
            return failed(refusal)

    async def is_gone(self, call_id: CallId) -> bool:
        return True  # It lives and dies with its process.


async def _output(call: ToolRun, path: str) -> bytes:
    call_id = path.removeprefix(OUTPUT)
    output = await call.output(CallId(call_id)) if is_id(call_id) else None
    if output is None:
        raise Refused(f"there is no {shown(path)}: only output that was too long to be shown is kept")
    return output


def _read_output(output: bytes, arguments: Arguments) -> str:
    file = BytesIO(output)
    skipped = _skip(file, arguments)
    return _told(_passage(file, arguments.limit_lines), skipped, len(output))


def _read(call: ToolRun, arguments: Arguments, vault: Vault) -> str:
    path = arguments.path
    with walking(call.workspace, path, vault) as walk:
        name = walk.go(path)
        if not name:
            raise Refused(f"{shown(path)} is a folder; list_files shows what is in it")
        with _open(name, walk.folder, path) as file:
            size = os.fstat(file.fileno()).st_size
            if b"\0" in file.read(_SNIFF_BYTES):
                raise Refused(f"{shown(path)} is a binary file of {size:,} bytes, not text")
            file.seek(0)
            skipped = _skip(file, arguments)
            passage = _passage(file, arguments.limit_lines)
    if b"\0" in passage.body:
        raise Refused(f"{shown(path)} is a binary file of {size:,} bytes, not text")
    return _told(passage, skipped, size)


def _open(name: str, folder: int, path: str) -> BinaryIO:
    fd = os.open(name, _OPEN, dir_fd=folder)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise Refused(f"{shown(path)} is a folder; list_files shows what is in it")
        if not stat.S_ISREG(mode):
            raise Refused(f"{shown(path)} is not a regular file")
        return os.fdopen(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def _skip(file: BinaryIO, arguments: Arguments) -> int:
    room = READ_FILE_SCAN_BYTES_MAX
    for lines in range(arguments.offset_lines):
        while True:
            piece = file.readline(READ_FILE_BYTES_MAX)
            room -= len(piece)
            if room < 0:
                raise Refused(
                    f"line {arguments.offset_lines:,} lies beyond the first"
                    f" {READ_FILE_SCAN_BYTES_MAX:,} bytes; use the shell (sed, tail) for it"
                )
            if not piece:
                raise Refused(f"{shown(arguments.path)} has only {lines:,} lines")
            if piece.endswith(b"\n") or len(piece) < READ_FILE_BYTES_MAX:
                break
    return arguments.offset_lines


def _passage(file: BinaryIO, lines_max: int) -> Passage:
    pieces: list[bytes] = []
    room, passage = READ_FILE_BYTES_MAX, Passage()
    while passage.lines < lines_max and not passage.more:
        line = file.readline(room + 1)
        if not line:
            break
        if len(line) <= room:
            pieces.append(line)
            room -= len(line)
            passage.lines += 1
        elif pieces:  # It does not fit behind the others; it comes first the next time.
            passage.more = True
        else:
            pieces.append(whole_characters(line[:room]))
            passage.lines, passage.is_cut, passage.more = 1, True, True
    passage.more = passage.more or bool(file.read(1))
    passage.body = b"".join(pieces)
    return passage


def _told(passage: Passage, skipped: int, size: int) -> str:
    if not passage.body:
        return "[nothing follows]" if skipped else "[the file is empty]"
    text = passage.body.decode("utf-8", "replace")
    notes = []
    if skipped or passage.more:
        last = skipped + passage.lines
        notes.append(f"lines {skipped + 1}-{last} of a file of {size:,} bytes")
        if passage.is_cut:
            notes.append(f"line {last} is cut after {len(passage.body):,} bytes")
        if passage.more:
            notes.append(f"offset_lines={last} reads on")
    if "\ufffd" in text and "\ufffd".encode() not in passage.body:
        notes.append("not all of it is valid UTF-8")
    return f"[{'; '.join(notes)}]\n{text}" if notes else text
