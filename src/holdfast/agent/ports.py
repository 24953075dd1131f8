"""What the agent needs of the world: a model that streams, tools that act, someone who writes things down.

The loop knows only these. Models and tools are made by `main`; the engine is the one who writes.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from holdfast.domain.context.context import Profile, Request
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.codec import Unknown
from holdfast.domain.events.facts import AnyFact, Delta, Effect
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.events.stream_fold import OutputFold
from holdfast.domain.files import Takes
from holdfast.domain.ids import CallId, RunId, SessionId
from holdfast.domain.memories import Recollection
from holdfast.domain.state.rows import ToolRow
from holdfast.domain.state.session_state import Decide
from holdfast.domain.transcript.transcript import Transcript
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
        of_request: bool = False,
    ) -> None:
        super().__init__(detail=detail)
        self.retryable = retryable
        self.retry_after_ms = retry_after_ms
        self.too_long = too_long
        """The request did not fit its window; a shorter one, or a larger window, may."""
        self.of_request = of_request
        """Something is wrong with the request, so that another model would not answer it either."""


class AskedInstead(msgspec.Struct, frozen=True):
    """The model that was asked has failed before it said anything, and this one is asked in its place.

    What comes after it is by `model`, whose signatures only `provider` reads, at its own `rate`.
    """

    model: str
    provider: str
    failure: ModelFailure
    rate: Rate | None = None


ModelDelta = TextDelta | ReasoningDelta | CallDelta | StepEnd | AskedInstead


class Model(Protocol):
    """One model behind one wire protocol."""

    @property
    def name(self) -> str:
        """As people choose it: `openai:NAME`, `demo`."""

    @property
    def profile(self) -> Profile: ...

    async def takes(self) -> Takes:
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


class Recorder(Protocol):
    """Writes down what a run does. Everything it is told is refused once another process has the run."""

    @property
    def run_id(self) -> RunId: ...

    @property
    def session_id(self) -> SessionId: ...

    @property
    def workspace(self) -> Path: ...

    async def record(self, decide: Decide) -> Sequence[AnyFact | Unknown]:
        """Commit what `decide` says, after everything streamed before; returns it once it is durable.

        Raises what `decide` raises, LeaseLost, or a StoreFault.
        """

    def stream(self, delta: Delta) -> bool:
        """Hand over a delta; it is durable soon, in order. False: wait for room before the next."""

    async def room(self) -> None:
        """Wait while too much of what was streamed is not durable yet."""

    def pause(self) -> None:
        """To be called between steps: raises when the run is to go no further for now."""

    async def transcript(self, chars: int) -> Transcript:
        """The conversation as the model's context is made from: so much of its end, or a little more.

        For a run it is always the same number: what it is asked for first counts.
        """

    async def keep_instructions(self, text: str) -> str:
        """Have what the run is told durable, under the digest that is returned. Raises StoreFault."""

    async def instructions(self, digest: str) -> str | None:
        """What was kept under a digest; None if it is not there."""

    async def output_of(self, tool: ToolRow) -> OutputFold:
        """What an earlier attempt at a call has streamed."""

    async def file(self, blob: str) -> bytes | None:
        """The content of a file; None if it is no longer there."""

    async def keep(self, content: bytes) -> str:
        """Have `content` durable as a blob, whose name is returned. Raises StoreFault, TooLarge."""

    async def output(self, call_id: CallId) -> bytes | None:
        """The whole output of a call of this conversation that was too long to be shown; None: it is not."""


class Remembering(Protocol):
    """Memory, as someone who answers needs it. Nothing here raises, and nothing takes long."""

    async def owner(self, session_id: SessionId) -> str | None:
        """Who tells memory of what is completed in this session from now on, by the agent asked.

        Empty: nobody does yet, and it is owed all the same. None: nothing is owed.
        """

    async def recall(self, session_id: SessionId, said: str, given: Collection[str]) -> tuple[str, ...]:
        """What may matter to whoever says `said`, as the model is to read it; nothing that is in `given`."""


class Forgetful:
    """Nothing is owed, and nothing is known."""

    async def owner(self, session_id: SessionId) -> str | None:
        return None

    async def recall(self, session_id: SessionId, said: str, given: Collection[str]) -> tuple[str, ...]:
        return ()


class Memories(Protocol):
    """Memory, as tools reach it. Raises a HoldfastError that says what is wrong."""

    async def remember(self, text: str, session_id: SessionId, turn: int, key: str) -> str:
        """Remember one thing, once for a key; returns it as it is remembered."""

    async def search(self, query: str, session_id: SessionId) -> Sequence[Recollection]:
        """What is remembered that may have to do with `query`, the best first; only so many."""


Emit = Callable[[str, Literal["stdout", "stderr"]], None]
"""Takes a piece of output as it comes."""
Keep = Callable[[bytes], Awaitable[str | None]]
"""Has what a file holds durable, and says under which name; None: it holds a secret, and is not kept."""
Output = Callable[[CallId], Awaitable[bytes | None]]
"""Gives the whole output of an earlier call of the same conversation, where that was too long to be shown."""


async def keeps_nothing(content: bytes) -> str | None:
    return None


async def no_output(call_id: CallId) -> bytes | None:
    return None


class ToolRun(msgspec.Struct, frozen=True):
    """One call to carry out: its arguments as the model wrote them, where it may work, where it was made."""

    call_id: CallId
    arguments: str
    workspace: Path
    emit: Emit
    session_id: SessionId = SessionId("")
    turn: int = 0
    keep: Keep = keeps_nothing
    output: Output = no_output


class ToolResult(msgspec.Struct, frozen=True):
    """What goes back to the model. With no parts, it is what was emitted. Once durable, `settled` is told.

    `unknown`: it was begun, and nobody can say whether it was done. Unless that does no harm, it is not ended
    by this but put to a person, with what it has emitted.
    """

    outcome: Literal["done", "failed", "unknown"]
    parts: tuple[AnyPart, ...] | None = None
    settled: Callable[[], None] | None = None


class Tool(Protocol):
    """Something the agent can do. Cancelling `run` stops it, children included, before it returns."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def effect(self) -> Effect: ...

    @property
    def asks(self) -> bool:
        """Whether a call is put to a person first, where calls are.

        One that only looks is not; nor is one whose effect stays in sight and can be taken back at any time.
        """

    def flaw(self, arguments: str) -> str:
        """Why a call with these arguments can only fail, in a sentence; empty where it may be carried out.

        Such a call is put to nobody, and not made. Looks at nothing but the arguments.
        """

    async def run(self, call: ToolRun) -> ToolResult:
        """Carry out one call. Bad arguments and failures are results, not exceptions."""

    async def is_gone(self, call_id: CallId) -> bool:
        """Whether nothing of an earlier run of this call, by any process, is still at work."""


@runtime_checkable
class Foreseeing(Protocol):
    """A tool that can tell whether a call would fail as things are now."""

    async def foreseen(self, arguments: str, workspace: Path) -> str:
        """Why a call would fail, in a sentence; empty where it may be carried out. Changes nothing.

        A call that would is put to nobody, and not made. What it looked at may change before another call is
        made: whoever makes that looks again.
        """
