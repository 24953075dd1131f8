"""Implement `edit_file`: replace exact text in a file of the workspace."""

import codecs
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.domain.events.facts import Effect
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId
from holdfast.domain.limits import EDIT_FILE_BYTES_MAX
from holdfast.tools.arguments import ToolError, argument_error, failed_result, read_arguments, tool_spec
from holdfast.tools.files.atomic_replace import FileSnapshot
from holdfast.tools.files.file_changer import FileChanger
from holdfast.tools.files.workspace import quote_path
from holdfast.tools.ports import ToolResult, ToolRun

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LINE_NUMBERS_MAX = 10
_LINES_COMPARED_MAX = 2_000
_OLD_LINES_MAX = 50
_LINE_CHARS_MAX = 120


class EditFileArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="File in the workspace, relative to it or absolute.")]
    old_text: Annotated[
        str,
        Meta(description="What to replace, exactly as it stands in the file; enough of it to occur once."),
    ]
    new_text: Annotated[str, Meta(description="What to put in its place.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence.")] = False


class EditFileTool:
    """Edit a file, once per call: the note of an earlier run says whether it made the edit."""

    spec = tool_spec(
        "edit_file",
        "Replace text in a text file of the workspace. `old_text` must occur exactly once, white space"
        " included, unless `replace_all` is set. Line ends and encoding stay as they are.",
        EditFileArguments,
    )
    effect: Effect = "idempotent"
    needs_approval = True

    def __init__(self, file_changer: FileChanger) -> None:
        self._file_changer = file_changer

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, _read_edit_arguments)

    async def preflight(self, arguments: str, workspace: Path) -> str:
        try:
            edit = _read_edit_arguments(arguments)
            await self._file_changer.preflight(
                workspace, edit.path, partial(_edited_content, edit, []), False
            )
        except ToolError as error:
            return str(error)
        return ""

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = _read_edit_arguments(call.arguments)
            counts: list[int] = []
            result = await self._file_changer.apply(
                call,
                arguments.path,
                partial(_edited_content, arguments, counts),
                is_exact=True,
                create_folders=False,
            )
        except ToolError as error:
            return failed_result(error)
        # Without counts, an earlier run of the call made the edit.
        times = f", {pluralize(counts[-1], 'replacement')}" if counts else ""
        text = Text(f"edited {quote_path(arguments.path)}{times}")
        return ToolResult(
            "done", (text, result.change), partial(self._file_changer.discard_note, call.call_id)
        )

    async def is_finished(self, call_id: CallId) -> bool:
        return True  # The call runs inside the server process.


def _read_edit_arguments(text: str) -> EditFileArguments:
    arguments = read_arguments(text, EditFileArguments)
    if not arguments.old_text:
        raise ToolError("old_text is empty; write_file writes a whole file")
    if arguments.old_text == arguments.new_text:
        raise ToolError("old_text and new_text are the same: there is nothing to do")
    return arguments


def _edited_content(arguments: EditFileArguments, counts: list[int], snapshot: FileSnapshot | None) -> bytes:
    path = quote_path(arguments.path)
    if snapshot is None:
        raise ToolError(f"there is no {path}; write_file makes one")
    before = snapshot.content
    if before is None or len(before) > EDIT_FILE_BYTES_MAX:
        raise ToolError(f"{path} is {snapshot.size_bytes:,} bytes; edit_file takes {EDIT_FILE_BYTES_MAX:,}")
    try:
        document = TextDocument.decode(before, arguments.old_text + arguments.new_text)
        text, count = replace_text(document, arguments.old_text, arguments.new_text, arguments.replace_all)
        after = document.encode(text)
    except EditError as error:
        raise ToolError(f"{path}: {error}") from None
    if len(after) > EDIT_FILE_BYTES_MAX:
        raise ToolError(f"{path} would have {len(after):,} bytes; edit_file takes {EDIT_FILE_BYTES_MAX:,}")
    counts.append(count)
    return after


class EditError(Exception):
    """An edit that cannot be made; the message is for the model."""


class TextDocument(msgspec.Struct, frozen=True):
    """A file's text with its encoding and line ends."""

    text: str
    bom: bytes = b""
    encoding: str = "utf-8"
    errors: str = "strict"
    has_crlf: bool = False

    @classmethod
    def decode(cls, content: bytes, edit_text: str) -> "TextDocument":
        """Decode a file for an edit that involves `edit_text`. Raises EditError if the file is not text."""
        bom, encoding = next(((b, e) for b, e in _BOMS if content.startswith(b)), (b"", "utf-8"))
        body = content[len(bom) :]
        errors = "strict"
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError:
            if encoding != "utf-8" or not edit_text.isascii():
                raise EditError("it is not text in UTF-8; only plain ASCII can be replaced in it") from None
            # Surrogate escapes write all other bytes back unchanged.
            text, errors = body.decode(encoding, "surrogateescape"), "surrogateescape"
        if "\0" in text:
            raise EditError("it is a binary file, not text")
        has_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        text = text.replace("\r\n", "\n") if has_crlf else text
        return cls(text, bom, encoding, errors, has_crlf)

    def encode(self, text: str) -> bytes:
        """Encode `text` with this file's encoding and line ends. Raises EditError."""
        text = text.replace("\n", "\r\n") if self.has_crlf else text
        try:
            return self.bom + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError:
            raise EditError("new_text holds half a character, which no file can hold") from None


def replace_text(document: TextDocument, old: str, new: str, replace_all: bool) -> tuple[str, int]:
    """Return the edited text and the number of replacements.

    Raises EditError if `old` does not occur, or occurs more than once without `replace_all`.
    """
    text = document.text
    if document.has_crlf:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    first = text.find(old)
    if first < 0:
        raise EditError(f"old_text is not there. {_nearest_match(text, old)}".rstrip())
    # An overlapping occurrence is ambiguous too.
    if not replace_all and text.find(old, first + 1) >= 0:
        line_numbers = _line_numbers(text, old)
        raise EditError(
            f"old_text is there more than once ({line_numbers}); take more of what is around it,"
            " or set replace_all"
        )
    count = text.count(old) if replace_all else 1
    if len(text) + count * (len(new) - len(old)) > EDIT_FILE_BYTES_MAX:
        raise EditError(f"it would be larger than the {EDIT_FILE_BYTES_MAX:,} bytes that edit_file takes")
    return text.replace(old, new) if replace_all else text[:first] + new + text[first + len(old) :], count


def pluralize(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _line_numbers(text: str, old: str) -> str:
    lines: list[int] = []
    at = text.find(old)
    for _ in range(_LINE_NUMBERS_MAX):
        if at >= 0:
            lines.append(text.count("\n", 0, at) + 1)
            at = text.find(old, at + 1)
    named = ", ".join(map(str, dict.fromkeys(lines))) + (" …" if at >= 0 else "")
    return f"line {named}" if len(set(lines)) == 1 else f"lines {named}"


def _nearest_match(text: str, old: str) -> str:
    """Return a hint at the text most similar to `old`, or an empty text."""
    lines = text.split("\n")
    old_lines = [line for line in old.replace("\r\n", "\n").split("\n") if line.strip()][:_OLD_LINES_MAX]
    if not old_lines:
        return ""
    if (at := _find_ignoring_whitespace(lines, old_lines)) is not None:
        return f"With other white space or line ends it is at line {at + 1:,}: read it there."
    compared = [line[:_LINE_CHARS_MAX] for line in lines[:_LINES_COMPARED_MAX]]
    near = get_close_matches(old_lines[0][:_LINE_CHARS_MAX], compared, n=1)
    if not near:
        return "Nothing in the file looks like its first line."
    return f"The nearest to its first line is line {compared.index(near[0]) + 1:,}: {near[0].strip()}"


def _find_ignoring_whitespace(lines: Sequence[str], old_lines: Sequence[str]) -> int | None:
    plain = [("".join(line.split()), at) for at, line in enumerate(lines) if line.strip()]
    first, goal = "".join(old_lines[0].split()), ["".join(line.split()) for line in old_lines]
    for start, (line, at) in enumerate(plain):
        if line == first and [other for other, _ in plain[start : start + len(goal)]] == goal:
            return at
    return None
