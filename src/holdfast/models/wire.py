"""What a wire protocol is: requests as bytes, answers read as they stream.

One module per protocol implements it, without I/O. `http_model.HttpModel` does the asking for all of them.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.models.ports import ModelDelta, ToolSpec

PER_CONVERSATION = "conversation."
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


class WireProtocol(Protocol):
    """One protocol."""

    @property
    def path(self) -> str:
        """Where an answer is asked for, below the base URL."""

    @property
    def optional_fields(self) -> Sequence[tuple[str, str]]:
        """Fields that may be left out, each with the words (in lower case) by which a server refuses it.

        One that is OF_THE_CONVERSATION is left out of the one request; all others from then on.
        """

    def encode(
        self,
        model: str,
        profile: ModelProfile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        """The body of a streaming request, `without` the optional fields that a server does not take."""

    def decoder(self) -> Decoder:
        """For one answer."""
