"""What a message is made of."""

from collections.abc import Iterable

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
    """An attachment or large output, kept as a blob.

    `anyway`: send it also to a model that is not known to take such files.
    """

    blob: str
    name: str
    media_type: str
    size_bytes: int
    anyway: bool = False


class Change(Part, frozen=True, tag="change"):
    """A file of the workspace that a tool changed: what it held before and after, as blobs.

    Without a blob there was no such file. What was too large, or held a secret, is not `kept`: there are no
    blobs then, and nobody can put it back. `diff` may be cut; `added` and `removed` count lines. `workspace`
    is the folder that was chosen for the conversation then; nothing stands for the one that was made for it.
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
    """Every blob that `parts` need."""
    found: list[str | None] = []
    for part in parts:
        if isinstance(part, File):
            found.append(part.blob)
        elif isinstance(part, Change):
            found += (part.before, part.after)
    return [blob for blob in found if blob]


def message_text(parts: tuple[AnyPart, ...]) -> str:
    """The words of a message, without its thinking or its calls."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))
