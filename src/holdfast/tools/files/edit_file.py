"""`edit_file`: a piece of a text file in the workspace replaced by another, word for word."""

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.domain.events.facts import Effect
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId
from holdfast.domain.limits import EDIT_FILE_BYTES_MAX
from holdfast.tools.arguments import Refused, failed, flaw_in, read_arguments, spec_of
from holdfast.tools.files.atomic_replace import Seen
from holdfast.tools.files.file_edit import Changing
from holdfast.tools.files.text_replace import Document, Miss, counted, replaced
from holdfast.tools.files.workspace import shown
from holdfast.tools.ports import ToolResult, ToolRun


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File in the workspace, relative to it or absolute.")]
    old_text: Annotated[
        str,
        Meta(description="What to replace, exactly as it stands in the file; enough of it to occur once."),
    ]
    new_text: Annotated[str, Meta(description="What to put in its place.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence.")] = False


class EditFile:
    """Edits a file. Doing the same call again does nothing more: a note tells whether it was done."""

    spec = spec_of(
        "edit_file",
        "Replace text in a text file of the workspace. `old_text` must occur exactly once, white space"
        " included, unless `replace_all` is set. Line ends and encoding stay as they are.",
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
            wanted = _read(arguments)
            await self._changing.foresee(workspace, wanted.path, partial(_edited, wanted, []), False)
        except Refused as refusal:
            return str(refusal)
        return ""

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = _read(call.arguments)
            counts: list[int] = []
            done = await self._changing.apply(
                call, arguments.path, partial(_edited, arguments, counts), is_exact=True, makes_folders=False
            )
        except Refused as refusal:
            return failed(refusal)
        # A call that had been carried out before is told by what is there now.
        times = f", {counted(counts[-1], 'replacement')}" if counts else ""
        said = Text(f"edited {shown(arguments.path)}{times}")
        return ToolResult("done", (said, done.change), partial(self._changing.settled, call.call_id))

    async def is_gone(self, call_id: CallId) -> bool:
        return True  # It lives and dies with its process.


def _read(text: str) -> Arguments:
    """Raises Refused."""
    arguments = read_arguments(text, Arguments)
    if not arguments.old_text:
        raise Refused("old_text is empty; write_file writes a whole file")
    if arguments.old_text == arguments.new_text:
        raise Refused("old_text and new_text are the same: there is nothing to do")
    return arguments


def _edited(arguments: Arguments, counts: list[int], seen: Seen | None) -> bytes:
    path = shown(arguments.path)
    if seen is None:
        raise Refused(f"there is no {path}; write_file makes one")
    before = seen.content
    if before is None or len(before) > EDIT_FILE_BYTES_MAX:
        raise Refused(f"{path} is {seen.size_bytes:,} bytes; edit_file takes {EDIT_FILE_BYTES_MAX:,}")
    try:
        document = Document.of(before, arguments.old_text + arguments.new_text)
        text, count = replaced(document, arguments.old_text, arguments.new_text, arguments.replace_all)
        after = document.encoded(text)
    except Miss as miss:
        raise Refused(f"{path}: {miss}") from None
    if len(after) > EDIT_FILE_BYTES_MAX:
        raise Refused(f"{path} would have {len(after):,} bytes; edit_file takes {EDIT_FILE_BYTES_MAX:,}")
    counts.append(count)
    return after
