"""Text of a file and exact replacement in it; what the file is written in stays as it was.

A file whose lines all end in CR LF is read and written as if they ended in LF, so that whoever replaces
lines need not know. Where the ends are mixed, every character counts.
"""

import codecs
from collections.abc import Sequence
from difflib import get_close_matches

import msgspec

from holdfast.domain.limits import EDIT_FILE_BYTES_MAX

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_LINES_NAMED_MAX = 10
_LINES_COMPARED_MAX = 2_000
_LINES_WANTED_MAX = 50
_LINE_CHARS_MAX = 120


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
