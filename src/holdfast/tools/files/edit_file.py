"""`edit_file`: replace exact text in a file of the workspace."""

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
from holdfast.tools.arguments import Refused, failed, flaw_in, read_arguments, spec_of
from holdfast.tools.files.atomic_replace import Seen
from holdfast.tools.files.file_changer import Changing
from holdfast.tools.files.workspace import shown
from holdfast.tools.ports import ToolResult, ToolRun

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LINES_NAMED_MAX = 10
_LINES_COMPARED_MAX = 2_000
_LINES_WANTED_MAX = 50
_LINE_CHARS_MAX = 120


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


class Miss(Exception):
    """Why nothing was replaced, as the model reads it."""


class Document(msgspec.Struct, frozen=True):
    """A file's text, and how it was written."""

    text: str
    bom: bytes = b""
    encoding: str = "utf-8"
    errors: str = "strict"
    has_crlf: bool = False

    @classmethod
    def of(cls, content: bytes, said: str) -> "Document":
        """What `content` says, to be changed by what is in `said`. Raises Miss for what is not text."""
        bom, encoding = next(((b, e) for b, e in _BOMS if content.startswith(b)), (b"", "utf-8"))
        body = content[len(bom) :]
        errors = "strict"
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError:
            if encoding != "utf-8" or not said.isascii():
                raise Miss("it is not text in UTF-8; only plain ASCII can be replaced in it") from None
            # Whatever the other bytes mean, they come back as they were.
            text, errors = body.decode(encoding, "surrogateescape"), "surrogateescape"
        if "\0" in text:
            raise Miss("it is a binary file, not text")
        has_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
        text = text.replace("\r\n", "\n") if has_crlf else text
        return cls(text, bom, encoding, errors, has_crlf)

    def encoded(self, text: str) -> bytes:
        """`text` written as this was."""
        text = text.replace("\n", "\r\n") if self.has_crlf else text
        try:
            return self.bom + text.encode(self.encoding, self.errors)
        except UnicodeEncodeError:
            raise Miss("new_text holds half a character, which no file can hold") from None


def replaced(document: Document, old: str, new: str, everywhere: bool) -> tuple[str, int]:
    """The text with `old` replaced, and how often. Raises Miss unless `old` is there once, or everywhere."""
    text = document.text
    if document.has_crlf:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    first = text.find(old)
    if first < 0:
        raise Miss(f"old_text is not there. {_nearest(text, old)}".rstrip())
    # One that overlaps the first is another place too.
    if not everywhere and text.find(old, first + 1) >= 0:
        places = _lines_of(text, old)
        raise Miss(
            f"old_text is there more than once ({places}); take more of what is around it, or set replace_all"
        )
    count = text.count(old) if everywhere else 1
    if len(text) + count * (len(new) - len(old)) > EDIT_FILE_BYTES_MAX:
        raise Miss(f"it would be larger than the {EDIT_FILE_BYTES_MAX:,} bytes that edit_file takes")
    return text.replace(old, new) if everywhere else text[:first] + new + text[first + len(old) :], count


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _lines_of(text: str, old: str) -> str:
    lines: list[int] = []
    at = text.find(old)
    for _ in range(_LINES_NAMED_MAX):
        if at >= 0:
            lines.append(text.count("\n", 0, at) + 1)
            at = text.find(old, at + 1)
    named = ", ".join(map(str, dict.fromkeys(lines))) + (" …" if at >= 0 else "")
    return f"line {named}" if len(set(lines)) == 1 else f"lines {named}"


def _nearest(text: str, old: str) -> str:
    """Where something like `old` stands, if anywhere."""
    lines = text.split("\n")
    wanted = [line for line in old.replace("\r\n", "\n").split("\n") if line.strip()][:_LINES_WANTED_MAX]
    if not wanted:
        return ""
    if (at := _loosely(lines, wanted)) is not None:
        return f"With other white space or line ends it is at line {at + 1:,}: read it there."
    compared = [line[:_LINE_CHARS_MAX] for line in lines[:_LINES_COMPARED_MAX]]
    near = get_close_matches(wanted[0][:_LINE_CHARS_MAX], compared, n=1)
    if not near:
        return "Nothing in the file looks like its first line."
    return f"The nearest to its first line is line {compared.index(near[0]) + 1:,}: {near[0].strip()}"


def _loosely(lines: Sequence[str], wanted: Sequence[str]) -> int | None:
    plain = [("".join(line.split()), at) for at, line in enumerate(lines) if line.strip()]
    first, goal = "".join(wanted[0].split()), ["".join(line.split()) for line in wanted]
    for start, (line, at) in enumerate(plain):
        if line == first and [each for each, _ in plain[start : start + len(goal)]] == goal:
            return at
    return None
