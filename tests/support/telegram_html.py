"""Parse Telegram's HTML as its server does (parse mode HTML of the Bot API), with the same errors."""

import re
from typing import NamedTuple

TAGS = frozenset(
    {
        "b",
        "strong",
        "i",
        "em",
        "u",
        "ins",
        "s",
        "strike",
        "del",
        "a",
        "code",
        "pre",
        "blockquote",
        "tg-spoiler",
    }
    | {"span", "tg-emoji"}
)
ALONE = frozenset({"a", "code", "pre"})
"""Entities that cannot be nested in each other; nor can a quote be inside a quote."""
NAMED = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_TOKEN = re.compile(r"<(/?)([^\s>/]*)([^>]*)>|&(#?\w+);|([^<&]+)|(.)", re.DOTALL)
_ATTRIBUTE = re.compile(r'\s+([a-zA-Z-]+)="([^"]*)"')


class BadMarkup(Exception):
    """The error of Telegram for a text that it cannot parse."""


class Entity(NamedTuple):
    tag: str
    value: str
    inside: tuple[str, ...]
    text: str


def parse_markup(markup: str) -> tuple[str, list[Entity]]:
    """Return the visible text and its entities. Raise BadMarkup."""
    text, found, still_open = "", [], []
    for token in _TOKEN.finditer(markup):
        end, tag, rest, entity, plain, other = token.groups()
        at = len(markup[: token.start()].encode())
        if tag is None:
            text += plain or _character(entity) or other or token.group(0)
            if other == "<":
                raise BadMarkup(f"Can't find end of the entity starting at byte offset {at}")
        elif end:
            if not still_open or still_open[-1][0] != tag.lower():
                raise BadMarkup(f'Unmatched end tag at byte offset {at}, found "</{tag}>"')
            name, value, start = still_open.pop()
            found.append(Entity(name, value, tuple(each[0] for each in still_open), text[start:]))
        else:
            still_open.append((tag.lower(), _value(tag.lower(), rest, at), len(text)))
    if still_open:
        raise BadMarkup(f"Can't find end tag corresponding to start tag {still_open[-1][0]}")
    return text, found


def misnested_entities(entities: list[Entity]) -> list[Entity]:
    """Return nestings that Telegram accepts but changes, such as code in links or quotes in quotes."""

    def is_wrong(each: Entity) -> bool:
        inside = each.inside
        if each.tag == "code" and inside[-1:] == ("pre",):
            inside = inside[:-1]
        if (
            "pre" in inside
            or "code" in inside
            or (each.tag in ("pre", "code") and set(inside) - {"blockquote"})
        ):
            return True
        if each.tag == "blockquote" and inside:
            return True
        return each.tag in ALONE and bool(ALONE & set(inside))

    return [each for each in entities if is_wrong(each)]


def _value(tag: str, rest: str, at: int) -> str:
    if tag not in TAGS:
        raise BadMarkup(f'Unsupported start tag "{tag}" at byte offset {at}')
    attributes = dict(_ATTRIBUTE.findall(rest))
    if _ATTRIBUTE.sub("", rest).strip():
        raise BadMarkup(f"Unclosed start tag at byte offset {at}")
    if tag == "span" and attributes.get("class") != "tg-spoiler":
        raise BadMarkup(f'Tag "span" must have class "tg-spoiler" at byte offset {at}')
    return _TOKEN.sub(
        lambda m: _character(m.group(4)) or m.group(0), attributes.get("href", attributes.get("class", ""))
    )


def _character(entity: str | None) -> str:
    if not entity:
        return ""
    if entity.startswith("#"):
        digits = entity[1:]
        return chr(int(digits[1:], 16) if digits[:1] in "xX" else int(digits))
    return NAMED.get(entity, "")
