"""The parts of a message."""

from collections.abc import Iterable

import msgspec


class Part(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """One piece of a message; the closed union is `AnyPart`."""


class Text(Part, frozen=True, tag="text"):
    text: str


class Reasoning(Part, frozen=True, tag="reasoning"):
    """Reasoning that a model showed. It goes back to its own provider only, whole and with its signature."""

    text: str
    signature: str = ""
    provider: str = ""


class ToolCall(Part, frozen=True, tag="tool_call"):
    """A call as the model wrote it; `arguments` is its JSON text, unchanged."""

    call_id: str
    name: str
    arguments: str


class File(Part, frozen=True, tag="file"):
    """An attachment or large output, stored as a blob.

    `anyway`: send it even to a model that is not known to accept such files.
    """

    blob: str
    name: str
    media_type: str
    size_bytes: int
    anyway: bool = False


class Change(Part, frozen=True, tag="change"):
    """A workspace file that a tool changed: its content before and after, as blobs.

    A missing blob means that there was no file. `kept` is False for content that was too large or held a
    secret: such a change has no blobs and cannot be restored. `diff` may be truncated; `added` and `removed`
    count lines. `workspace` is the folder chosen for the conversation at the time; empty: the one made for
    it.
    """

    path: str
    before: str | None = None
    after: str | None = None
    diff: str = ""
    added: int = 0
    removed: int = 0
    kept: bool = True
    workspace: str = ""


AnyPart = Text | Reasoning | ToolCall | File | Change


def blob_digests(parts: Iterable[AnyPart]) -> list[str]:
    """Return the digests of the blobs that `parts` refer to."""
    found: list[str | None] = []
    for part in parts:
        if isinstance(part, File):
            found.append(part.blob)
        elif isinstance(part, Change):
            found += (part.before, part.after)
    return [blob for blob in found if blob]


def message_text(parts: tuple[AnyPart, ...]) -> str:
    """Return the text of a message, without its reasoning and calls."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))
