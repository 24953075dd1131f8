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
_INVALID_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]")
_BACKTICKS = re.compile(r"`{3,}")


def parts_text(parts: Iterable[AnyPart]) -> str:
    """The text of `parts`; a file among them is told by its name."""
    texts = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, File):
            texts.append(f"[file {single_line(part.name)}]")
    return "\n\n".join(texts)


def file_text(file: File, content: FileContent) -> str:
    """A file that is text, whole; of any other, the note that says why it is not shown."""
    name = single_line(file.name)
    if content.kind != "text":
        return f"[file {name} {content.body}]"
    # Fences that nothing inside the file can close.
    longest = max(map(len, _BACKTICKS.findall(content.body)), default=2)
    fence = "`" * (longest + 1)
    return f"File {name}:\n{fence}\n{content.body.rstrip(chr(10))}\n{fence}"


def single_line(name: str) -> str:
    return " ".join(name.split())


def safe_tool_name(name: str) -> str:
    """A tool's name as every server takes it.

    One that a model made up may hold what servers refuse, and they would refuse it for ever.
    """
    return _INVALID_NAME_CHARS.sub("_", name)[:NAME_CHARS_MAX] or "unknown"


UNSUPPORTED_FILE = FileContent("note", "cannot be shown to this model")


class _ToolInfo(msgspec.Struct, frozen=True):
    """What a model is told of a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def tools_tokens(specs: Sequence[ToolSpec]) -> int:
    """What the descriptions of tools cost; what they say to people only costs nothing."""
    infos = [_ToolInfo(each.name, each.description, each.parameters) for each in specs]
    return estimate_tokens(msgspec.json.encode(infos).decode()) if infos else 0
