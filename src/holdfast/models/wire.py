"""The port to wire protocols: encode requests as bytes, decode answers as they stream.

One module per protocol implements it, without I/O. `http_model.HttpModel` does the I/O for all of them.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.models.ports import ModelDelta, ToolSpec

PER_CONVERSATION = "conversation."
"""Prefix of an optional field that a server refuses for its content in one conversation only."""

EFFORT = "effort"
"""Optional field: the reasoning effort. The stream reports when a server refuses it."""


class ErrorInStream(Exception):
    """The server sent an error instead of the rest of the answer; `body` is that error."""

    def __init__(self, body: bytes) -> None:
        super().__init__("an error in the stream")
        self.body = body


class Decoder(Protocol):
    """Decode one answer: the data of events in, deltas out."""

    @property
    def has_stream_ended(self) -> bool:
        """Return whether the stream announced its end."""

    @property
    def is_answer_complete(self) -> bool:
        """Return whether the answer is complete; its usage may still follow."""

    def feed(self, data: bytes) -> list[ModelDelta]:
        """Return the deltas in one event, or in an answer that did not stream.

        Raises ErrorInStream, or ValueError for data that is no part of an answer. Earlier deltas stay valid.
        """

    def end(self) -> list[ModelDelta]:
        """Return the last deltas of a complete answer, ending with its one StepEnd."""


class WireProtocol(Protocol):
    """A wire protocol of model servers."""

    @property
    def path(self) -> str:
        """Return the request path below the base URL."""

    @property
    def optional_fields(self) -> Sequence[tuple[str, str]]:
        """Return the fields that may be left out, each with the lower-case words of a server's refusal.

        A PER_CONVERSATION field is left out of one request, any other field from then on.
        """

    def encode(
        self,
        model: str,
        profile: ModelProfile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        """Return the body of a streaming request, `without` the optional fields that the server refuses."""

    def decoder(self) -> Decoder:
        """Return a decoder for one answer."""
