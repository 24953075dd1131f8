"""Split long Markdown into messages at paragraphs, lines or sentences.

A code block that is cut is closed at the end of its piece and reopened in the next. Sizes are in UTF-16
units, as the strictest apps count.
"""

import re
from collections.abc import Iterator

import msgspec

LIMIT_MIN = 200
"""Smaller pieces cannot be cut well."""
_AHEAD_CHARS = 160
"""The lookahead past a piece: longer than any line that opens or closes a code block."""
_FENCE = re.compile(r" {0,3}(`{3,16}|~{3,16})([^`\n]{0,100})$")
_LANGUAGE = re.compile(r"[\w+#.-]{1,20}")
_SENTENCE = re.compile("[.!?:;…][\"')\\]]*\\s|[\u3002\uff01\uff1f]")
_SPACE = re.compile(r"\s")


Fence = tuple[str, str] | None
"""The fence and the language of an open code block."""


class MarkdownPiece(msgspec.Struct, frozen=True):
    """A piece of a text. `opening` and `closing` reopen and close a code block that was cut."""

    opening: str
    chunk: str
    closing: str

    @property
    def text(self) -> str:
        return self.opening + self.chunk.strip("\n") + self.closing


def utf16_length(text: str) -> int:
    """Return the length in UTF-16 units."""
    return len(text) + sum(each > "\uffff" for each in text)


def split(text: str, limit: int) -> list[str]:
    """Return the pieces to send; none is longer than `limit`, and none is blank."""
    return [piece.text for piece in pieces(text, limit) if piece.chunk.strip()]


def full_piece(text: str, limit: int, fence: Fence) -> tuple[MarkdownPiece, Fence] | None:
    """Return the first piece of a growing text, cut as by `pieces`, and the code block open after it.

    None while the text is too short to decide the cut. `fence` is the code block open before it.
    """
    room = limit - utf16_length(_opening(fence))
    # Text beyond this length does not affect the cut.
    return _piece(text, limit, fence) if len(text) >= room + _AHEAD_CHARS else None


def pieces(text: str, limit: int, fence: Fence = None) -> Iterator[MarkdownPiece]:
    """Yield the pieces whose chunks together are `text`."""
    assert limit >= LIMIT_MIN, f"{limit} is too short a piece"
    at = 0
    while at < len(text):
        # Only what decides this piece: passing the whole rest would take quadratic time.
        piece, fence = _piece(text[at : at + limit + _AHEAD_CHARS], limit, fence)
        at += len(piece.chunk)
        yield piece


def _piece(text: str, limit: int, fence: Fence) -> tuple[MarkdownPiece, Fence]:
    opening = _opening(fence)
    room = limit - utf16_length(opening)
    ahead = text[: room + _AHEAD_CHARS]
    if utf16_length(ahead) <= room:
        # The last piece stays as written, even with an unclosed code block.
        return MarkdownPiece(opening, ahead, ""), None
    # The longest closing is a newline and sixteen fence characters.
    chunk = ahead[: _cut(ahead, _fitting(ahead, room - 17), fence)]
    fence = _fence_after(chunk, fence)
    return MarkdownPiece(opening, chunk, f"\n{fence[0]}" if fence is not None else ""), fence


def _opening(fence: Fence) -> str:
    return f"{fence[0]}{fence[1]}\n" if fence is not None else ""


def _fitting(text: str, room: int) -> int:
    """Return how many characters of `text` fit into `room`."""
    at = min(len(text), room)
    while utf16_length(text[:at]) > room:
        at -= max(1, (utf16_length(text[:at]) - room) // 2)
    return at


def _cut(text: str, window: int, fence: Fence) -> int:
    """Return where to cut within the first `window` characters: the best place that is not too early."""
    places = _cut_candidates(text, window, fence)
    for kinds in (("paragraph",), ("paragraph", "line"), ("paragraph", "line", "code")):
        best = max((at for at, kind in places if kind in kinds), default=0)
        if best >= window // 2:
            return best
    # Never within a line that opens or closes a code block.
    last_line = text.rfind("\n", 0, window) + 1
    if _FENCE.match(text[last_line:].split("\n", 1)[0]) and last_line > 0:
        return last_line
    for pattern in (_SENTENCE, _SPACE):
        found = [match.end() for match in pattern.finditer(text, window // 3, window)]
        if found:
            return found[-1]
    return window


def _cut_candidates(text: str, window: int, fence: Fence) -> list[tuple[int, str]]:
    """Return the possible cuts at line starts, each with its kind."""
    found: list[tuple[int, str]] = []
    start = 0
    while (end := text.find("\n", start, window)) >= 0:
        line = text[start:end]
        before, fence = fence, _after_line(line, fence)
        if fence is None:
            # The end of a code block is as good as the end of a paragraph.
            found.append((end + 1, "paragraph" if not line.strip() or before is not None else "line"))
        elif before is None:
            # Before a code block, not after its first line.
            found.append((start, "paragraph"))
        else:
            found.append((end + 1, "code"))
        start = end + 1
    return found


def _fence_after(chunk: str, fence: Fence) -> Fence:
    for line in chunk.split("\n"):
        fence = _after_line(line, fence)
    return fence


def _after_line(line: str, fence: Fence) -> Fence:
    """Return the code block that is open after a line."""
    match = _FENCE.match(line)
    if match is None:
        return fence
    mark, rest = match.group(1), match.group(2).strip()
    if fence is None:
        language = _LANGUAGE.match(rest)
        return mark, language.group() if language else ""
    closes = mark[0] == fence[0][0] and len(mark) >= len(fence[0]) and not rest
    return None if closes else fence
