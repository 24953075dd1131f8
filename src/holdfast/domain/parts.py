"""What a message is made of."""

import msgspec


class Part(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """One piece of a message; the closed union is `AnyPart`."""


class Text(Part, frozen=True, tag="text"):
    text: str


class Reasoning(Part, frozen=True, tag="reasoning"):
    """Thinking that a model showed. It goes back only whole, with its signature, to its provider."""

    text: str
    signature: str = ""
    provider: str = ""


class ToolCall(Part, frozen=True, tag="tool_call"):
    """A call as the model wrote it; `arguments` is JSON text, kept as it came."""

    call_id: str
    name: str
    arguments: str


class File(Part, frozen=True, tag="file"):
    """An attachment or large output, kept as a blob."""

    blob: str
    name: str
    media_type: str
    size_bytes: int


AnyPart = Text | Reasoning | ToolCall | File


def text_of(parts: tuple[AnyPart, ...]) -> str:
    """The words of a message, without its thinking or its calls."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))
