"""Split HTML into texts and tags in one pass.

The time is linear in the page's length. The tokenizer accepts any page: it reads broken markup roughly as
browsers do, and an unclosed construct extends to the end of the page.
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
"""Quotes count only at the start of a value. The pattern searches for a missing closing quote only once."""
_ATTRIBUTE = re.compile(
    r"(?P<name>[^\s/>=]++)(?:\s*+=\s*+(?:\"(?P<two>[^\"]*+)\"|'(?P<one>[^']*+)'|(?P<bare>[^\s>]*+)))?+"
)
_KEPT_ATTRIBUTES = MappingProxyType({
    "a": frozenset({"href"}), "area": frozenset({"href"}), "base": frozenset({"href"}),
    "img": frozenset({"alt"}), "ol": frozenset({"start"}),
})  # fmt: skip
"""The attributes in use, by tag."""
_RAW = frozenset({"script", "style", "iframe", "noembed", "noframes", "xmp", "plaintext"})
_TEXT_ONLY = frozenset({"title", "textarea"})
_END_TAGS = MappingProxyType(
    {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in _RAW | _TEXT_ONLY}
)
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{8,}+|[xX][0-9a-fA-F]{7,}+);?")
"""References with more digits than any character needs, which `html.unescape` may refuse to convert."""
_ATTRIBUTES_CHARS_MAX = 8_000
_NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class HtmlToken(NamedTuple):
    """A text, or an opening or closing tag. `value` is the text or the tag's name."""

    kind: Literal["text", "open", "close"]
    value: str
    attributes: Mapping[str, str] = _NO_ATTRIBUTES


def tokenize(page: str) -> Iterator[HtmlToken]:
    """Yield the tokens of a page, without the content of scripts and styles."""
    at = 0
    while at < len(page):
        tag_start = page.find("<", at)
        tag_start = len(page) if tag_start < 0 else tag_start
        if tag_start > at:
            yield HtmlToken("text", unescape(page[at:tag_start]))
        at = tag_start
        next_char = page[at + 1 : at + 2]
        if next_char in ("!", "?"):
            text, at = _declaration(page, at)
            if text:
                yield HtmlToken("text", text)
        elif next_char == "/" and not _is_letter(page[at + 2 : at + 3]):
            at = _end_of(page, ">", at)
        elif next_char == "/" or _is_letter(next_char):
            if (tag := _TAG.match(page, at)) is None:
                return  # A tag that never ends.
            yield (token := _tag_token(tag))
            at = tag.end()
            if token.kind == "open" and token.value in _END_TAGS:
                end = _END_TAGS[token.value].search(page, at)
                text_end = end.start() if end else len(page)
                if token.value in _TEXT_ONLY:
                    yield HtmlToken("text", unescape(page[at:text_end]))
                at = text_end
        elif next_char:
            yield HtmlToken("text", "<")
            at += 1
        else:
            yield HtmlToken("text", page[at:])
            return


def unescape(text: str) -> str:
    """Return `text` with its character references replaced."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text)) if "&" in text else text


def _is_letter(text: str) -> bool:
    return text.isascii() and text.isalpha()


def _declaration(page: str, at: int) -> tuple[str, int]:
    """Parse a declaration or comment, and return its CDATA text, if any, and its end."""
    if page.startswith("<!--", at):
        return "", _end_of(page, "-->", at + 2)  # `<!-->` is a whole comment.
    if page.startswith("<![CDATA[", at):
        ends = _end_of(page, "]]>", at)
        return page[at + 9 : ends].removesuffix("]]>"), ends
    return "", _end_of(page, ">", at)


def _end_of(page: str, end: str, at: int) -> int:
    found = page.find(end, at)
    return len(page) if found < 0 else found + len(end)


def _tag_token(tag: re.Match[str]) -> HtmlToken:
    name = tag["name"].lower()
    if tag["close"]:
        return HtmlToken("close", name)
    names = _KEPT_ATTRIBUTES.get(name)
    return HtmlToken("open", name, _attributes(tag["rest"], names) if names else _NO_ATTRIBUTES)


def _attributes(text: str, names: frozenset[str]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text[:_ATTRIBUTES_CHARS_MAX]):
        name = match["name"].lower()
        if name in names and name not in found:
            found[name] = unescape(match["two"] or match["one"] or match["bare"] or "")
    return found
