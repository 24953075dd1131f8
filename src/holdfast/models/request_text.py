"""Render the text that every protocol sends: messages, text files, tool names, and the size of tools."""

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
    """Return the text of `parts`; a file among them appears by name."""
    texts = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, File):
            texts.append(f"[file {single_line(part.name)}]")
    return "\n\n".join(texts)


def file_text(file: File, content: FileContent) -> str:
    """Return the whole text of a text file; for any other file, the note that says why it is not shown."""
    name = single_line(file.name)
    if content.kind != "text":
        return f"[file {name} {content.body}]"
    # Longer than any fence in the file, so that nothing inside it can close this one.
    longest = max(map(len, _BACKTICKS.findall(content.body)), default=2)
    fence = "`" * (longest + 1)
    return f"File {name}:\n{fence}\n{content.body.rstrip(chr(10))}\n{fence}"


def single_line(name: str) -> str:
    return " ".join(name.split())


def safe_tool_name(name: str) -> str:
    """Return a tool's name in a form that every server accepts.

    A model may invent a name that servers refuse, and they would then refuse every later request.
    """
    return _INVALID_NAME_CHARS.sub("_", name)[:NAME_CHARS_MAX] or "unknown"


UNSUPPORTED_FILE = FileContent("note", "cannot be shown to this model")


class _ToolInfo(msgspec.Struct, frozen=True):
    """The parts of a tool that a model sees."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def tools_tokens(specs: Sequence[ToolSpec]) -> int:
    """Return the tokens of the tools' descriptions. Text that only people see costs nothing."""
    infos = [_ToolInfo(spec.name, spec.description, spec.parameters) for spec in specs]
    return estimate_tokens(msgspec.json.encode(infos).decode()) if infos else 0
