"""The port to models: a request goes in, deltas come out, and every failure is a ModelFailure."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import SupportedFiles
from holdfast.domain.usage import Rate, Usage


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model sees it. `parameters` is the JSON schema of its arguments.

    `place` tells people where the tool runs, if not in the workspace. The model never sees it.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    place: str = ""


# A stream ends with exactly one StepEnd, or with a ModelFailure.


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """A piece of the model's visible thinking. The last piece of a segment may carry its opaque signature."""

    text: str
    signature: str = ""


class CallDelta(msgspec.Struct, frozen=True):
    """A piece of a tool call. `index` tells parallel calls apart. The first piece carries `name`."""

    index: int
    name: str
    arguments: str


class StepEnd(msgspec.Struct, frozen=True):
    """The end of a step: the stop reason (`stop`, `tool_calls`, `length`, or another word) and the usage."""

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
        """The request exceeded the model's window. A shorter request or a larger window may succeed."""
        self.bad_request = bad_request
        """The request itself is invalid, so another model would refuse it too."""


class FallbackStarted(msgspec.Struct, frozen=True):
    """The last attempt failed before its first delta, and `model` answers from here on.

    The deltas that follow cost this model's own `rate`. Only `provider` reads their signatures.
    """

    model: str
    provider: str
    failure: ModelFailure
    rate: Rate | None = None


ModelDelta = TextDelta | ReasoningDelta | CallDelta | StepEnd | FallbackStarted


class Model(Protocol):
    """A model behind one wire protocol."""

    @property
    def name(self) -> str:
        """Return the name that people choose it by: `openai:NAME`, `demo`."""

    @property
    def profile(self) -> ModelProfile: ...

    async def supported_files(self) -> SupportedFiles:
        """Return the kinds of files that the model accepts. May query its server briefly; never raises."""

    def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Send one request and yield the deltas as they arrive. Raises ModelFailure after the last delta.

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
