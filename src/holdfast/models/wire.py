"""What a wire protocol is: requests as bytes, answers read as they stream; text that all protocols send.

One module per protocol implements it, without I/O. `http_model.HttpModel` does the asking for all of them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.domain.context.context import Profile, Request, estimate_tokens
from holdfast.domain.context.request import FileContent
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.models.ports import ModelDelta, ToolSpec

OF_THE_CONVERSATION = "conversation."
"""How the name of an optional field begins that is refused for what it holds in this one conversation."""

EFFORT = "effort"
"""How much a model is to think, as something that may be left out. Whoever asked for it is told."""


class ErrorInStream(Exception):
    """The server sent an error where the answer should go on; `body` is what it sent."""

    def __init__(self, body: bytes) -> None:
        super().__init__("an error in the stream")
        self.body = body


class Decoder(Protocol):
    """The data of an answer's events in, deltas out. One decoder reads one answer."""

    @property
    def is_done(self) -> bool:
        """Whether the stream said that nothing more comes."""

    @property
    def is_finished(self) -> bool:
        """Whether the answer is whole; its usage may still come."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in one event, or in an answer that did not stream.

        Raises ErrorInStream, or ValueError for what is no part of an answer; nothing read before is lost.
        """

    def end(self) -> list[ModelDelta]:
        """What closes a whole answer; last of all its one StepEnd."""


class Wire(Protocol):
    """One protocol."""

    @property
    def path(self) -> str:
        """Where an answer is asked for, below the base URL."""

    @property
    def optional(self) -> Sequence[tuple[str, str]]:
        """Fields that may be left out, each with the words (in lower case) by which a server refuses it.

        One that is OF_THE_CONVERSATION is left out of the one request; all others from then on.
        """

    def encode(
        self,
        model: str,
        profile: Profile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        """The body of a streaming request, `without` the optional fields that a server does not take."""

    def decoder(self) -> Decoder:
        """For one answer."""


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
