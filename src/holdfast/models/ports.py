"""What the agent needs of a model: a request goes in, deltas come out, and failures have names."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import SupportedFiles
from holdfast.domain.usage import Rate, Usage


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model is told of it; `parameters` is the JSON schema of its arguments.

    `place` is for people: a sentence on where it is carried out, if not in the workspace.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    place: str = ""


# What a model streams. A step ends with exactly one StepEnd, or with a ModelFailure.


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """Thinking that the model shows; the last one of a stretch may carry its opaque signature."""

    text: str
    signature: str = ""


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call. `index` tells parallel calls apart; `name` comes with the first piece."""

    index: int
    name: str
    arguments: str


class StepEnd(msgspec.Struct, frozen=True):
    """Why the model stopped (`stop`, `tool_calls`, `length`, a word of its own), and what it used."""

    stop_reason: str
    usage: Usage = Usage()


class ModelFailure(HoldfastError):
    """The model could not answer: {detail}."""

    code, status = "model_failed", 502

    def __init__(
        self,
        *,
        detail: str,
        retryable: bool,
        retry_after_ms: int | None = None,
        too_long: bool = False,
        bad_request: bool = False,
    ) -> None:
        super().__init__(detail=detail)
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        self.too_long = too_long
        """The request did not fit its window; a shorter one, or a larger window, may."""
        self.bad_request = bad_request
        """Something is wrong with the request, so that another model would not answer it either."""


class FallbackStarted(msgspec.Struct, frozen=True):
    """The model that was asked has failed before it said anything, and this one is asked in its place.

    What comes after it is by `model`, whose signatures only `provider` reads, at its own `rate`.
    """

    model: str
    provider: str
    failure: ModelFailure
    rate: Rate | None = None


ModelDelta = TextDelta | ReasoningDelta | CallDelta | StepEnd | FallbackStarted


class Model(Protocol):
    """One model behind one wire protocol."""

    @property
    def name(self) -> str:
        """As people choose it: `openai:NAME`, `demo`."""

    @property
    def profile(self) -> ModelProfile: ...

    async def takes(self) -> SupportedFiles:
        """Which files it can be sent. May ask its server, briefly; never raises."""

    def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Ask once. Yields what arrives as it arrives; raises ModelFailure, keeping nothing back.

        Closing the generator ends the request.
        """

    async def close(self) -> None: ...


class NoSuchModel(HoldfastError):
    """There is no model {name}."""

    code, status = "no_such_model", 400
    remedy = (
        "Name it as PROVIDER:MODEL, such as openai:NAME, anthropic:NAME or ollama:NAME; or take the demo."
    )


class NoModelKey(HoldfastError):
    """{host} wants a key, and {lack}."""

    code, status = "no_model_key", 400
    remedy = "Set {variable} to your key, or connect the provider in the settings."


class UnsendableKey(HoldfastError):
    """The key{origin} cannot be sent to {host}: it holds characters that no key has."""

    code, status = "bad_model_key", 400
    remedy = "Copy it again from your provider, without quotation marks and line ends."


class BadModelUrl(HoldfastError):
    """{variable} is not the address of a server."""

    code, status = "bad_model_url", 400
    remedy = "Set {variable} to an address such as http://127.0.0.1:11434/v1."
