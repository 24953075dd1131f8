"""HTML as a run of texts and tags, read once from front to back.

No page takes longer than its length says, and none is refused: what is broken is read as browsers do, or
roughly so. Whatever never ends goes on to the end of the page.
"""

import html
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

_TAG = re.compile(
    r"<(?P<close>/?)(?P<name>[a-zA-Z][^\s/>]*+)"
    r"(?P<rest>(?:[^>=]++|=\s*+(?:\"[^\"]*+\"|'[^']*+')?+)*+)>"
)
"""Quotes count only where a value begins. One that is never closed is looked for once: none follows it."""
_ATTRIBUTE = re.compile(
    r"(?P<name>[^\s/>=]++)(?:\s*+=\s*+(?:\"(?P<two>[^\"]*+)\"|'(?P<one>[^']*+)'|(?P<bare>[^\s>]*+)))?+"
)
_LOOKED_AT = MappingProxyType({
    "a": frozenset({"href"}), "area": frozenset({"href"}), "base": frozenset({"href"}),
    "img": frozenset({"alt"}), "ol": frozenset({"start"}),
})  # fmt: skip
"""The attributes that anybody asks for, by tag."""
_RAW = frozenset({"script", "style", "iframe", "noembed", "noframes", "xmp", "plaintext"})
_TEXT_ONLY = frozenset({"title", "textarea"})
_ENDS = MappingProxyType(
    {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW | _TEXT_ONLY}
)
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{8,}+|[xX][0-9a-fA-F]{7,}+);?")
"""More than any character has; and more digits than a number may have."""
_ATTRIBUTES_CHARS_MAX = 8_000
_NONE: Mapping[str, str] = MappingProxyType({})


class Piece(NamedTuple):
    """A text, or a tag that opens or closes. `value` is the text or the tag's name."""

    kind: Literal["text", "open", "close"]
    value: str
    attributes: Mapping[str, str] = _NONE


def pieces(page: str) -> Iterator[Piece]:
    """The page, piece by piece. What scripts and styles hold is left out."""
    at = 0
    while at < len(page):
        begins = page.find("<", at)
        begins = len(page) if begins < 0 else begins
        if begins > at:
            yield Piece("text", unescaped(page[at:begins]))
        at = begins
        follows = page[at + 1 : at + 2]
        if follows in ("!", "?"):
            text, at = _declaration(page, at)
            if text:
                yield Piece("text", text)
        elif follows == "/" and not _is_letter(page[at + 2 : at + 3]):
            at = _after(page, ">", at)
        elif follows == "/" or _is_letter(follows):
            if (tag := _TAG.match(page, at)) is None:
                return  # A tag that never ends.
            yield (piece := _piece(tag))
            at = tag.end()
            if piece.kind == "open" and piece.value in _ENDS:
                end = _ENDS[piece.value].search(page, at)
                until = end.start() if end else len(page)
                if piece.value in _TEXT_ONLY:
                    yield Piece("text", unescaped(page[at:until]))
                at = until
        elif follows:
            yield Piece("text", "<")
            at += 1
        else:
            yield Piece("text", page[at:])
            return


def unescaped(text: str) -> str:
    """`text` with its character references replaced."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _is_letter(text: str) -> bool:
    return text.isascii() and text.isalpha()


def _declaration(page: str, at: int) -> tuple[str, int]:
    """What `<!` or `<?` begins: the text in it, if there is any, and where it ends."""
    if page.startswith("<!--", at):
        return "", _after(page, "-->", at + 2)  # `<!-->` is a whole one.
    if page.startswith("<![CDATA[", at):
        ends = _after(page, "]]>", at)
        return page[at + 9 : ends].removesuffix("]]>"), ends
    return "", _after(page, ">", at)


def _after(page: str, end: str, at: int) -> int:
    found = page.find(end, at)
    return len(page) if found < 0 else found + len(end)


def _piece(tag: re.Match[str]) -> Piece:
    name = tag["name"].lower()
    if tag["close"]:
        return Piece("close", name)
    wanted = _LOOKED_AT.get(name)
    return Piece("open", name, _attributes(tag["rest"], wanted) if wanted else _NONE)


def _attributes(text: str, wanted: frozenset[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for each in _ATTRIBUTE.finditer(text[:_ATTRIBUTES_CHARS_MAX]):
        name = each["name"].lower()
        if name in wanted and name not in found:
            found[name] = unescaped(each["two"] or each["one"] or each["bare"] or "")
    return found
