"""The text that every protocol sends: words, files as text, tool names, and the size of tools."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.context.context import estimate_tokens
from holdfast.domain.context.request import FileContent
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.models.ports import ToolSpec

NAME_CHARS_MAX = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_TICKS = re.compile(r"`{3,}")


def words(parts: Iterable[AnyPart]) -> str:
    """The text of `parts`; a file among them is told by its name."""
    said = []
    for part in parts:
        if isinstance(part, Text):
            said.append(part.text)
        elif isinstance(part, File):
            said.append(f"[file {on_one_line(part.name)}]")
    return "\n\n".join(said)


def file_words(file: File, content: FileContent) -> str:
    """A file that is text, whole; of any other, the note that says why it is not shown."""
    name = on_one_line(file.name)
    if content.kind != "text":
        return f"[file {name} {content.body}]"
    # Fences that nothing inside the file can close.
    longest = max(map(len, _TICKS.findall(content.body)), default=2)
    fence = "`" * (longest + 1)
    return f"File {name}:\n{fence}\n{content.body.rstrip(chr(10))}\n{fence}"


def on_one_line(name: str) -> str:
    return " ".join(name.split())


def tool_name(name: str) -> str:
    """A tool's name as every server takes it.

    One that a model made up may hold what servers refuse, and they would refuse it for ever.
    """
    return _NOT_IN_NAMES.sub("_", name)[:NAME_CHARS_MAX] or "unknown"


NOT_TAKEN = FileContent("note", "cannot be shown to this model")


class _Told(msgspec.Struct, frozen=True):
    """What a model is told of a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def tools_tokens(specs: Sequence[ToolSpec]) -> int:
    """What the descriptions of tools cost; what they say to people only costs nothing."""
    told = [_Told(each.name, each.description, each.parameters) for each in specs]
    return estimate_tokens(msgspec.json.encode(told).decode()) if told else 0
