"""Call memory providers, which are other people's code: in time, a few at once, whatever they raise.

Whatever it does, the caller gets an answer in time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import msgspec

from holdfast.domain.errors import HoldfastError, ProviderCannot, ProviderFailure
from holdfast.domain.events.facts import Failure
from holdfast.domain.limits import WEBHOOK_ANSWER_BYTES_MAX
from holdfast.domain.memories import Memory, MemoryPage
from holdfast.domain.secrets import Masking

DETAIL_CHARS_MAX = 500
"""What is kept of a receipt, or of what a provider says went wrong."""
T = TypeVar("T")
_ANSWER_BYTES_MAX = WEBHOOK_ANSWER_BYTES_MAX
"""As much as may come over a wire."""


class Answer(msgspec.Struct, frozen=True):
    """What came of a call. `cut_off`: nobody knows whether it was carried out."""

    value: object = None
    failure: Failure | None = None
    cut_off: bool = False


class Calls:
    """Asks providers; a caller holds one of `slots` while it does."""

    def __init__(self, mask: Masking, at_once: int) -> None:
        self._mask = mask
        self.slots = asyncio.Semaphore(at_once)
        self._asked: set[asyncio.Task[Answer]] = set()

    async def ask(self, question: Callable[[], Awaitable[object]], within_s: float) -> Answer:
        """Wait for the answer, but no longer than `within_s`: then the call is stopped, not waited for."""
        call = asyncio.create_task(self._answer(question))
        self._asked.add(call)
        call.add_done_callback(self._asked.discard)
        try:
            await asyncio.wait({call}, timeout=within_s)
        finally:
            call.cancel()
        if not call.done():
            detail = f"there was no answer within {within_s:g} s"
            return Answer(failure=Failure("memory_timed_out", detail), cut_off=True)
        if call.cancelled():
            return Answer(failure=Failure("memory_failed", "the call broke off"), cut_off=True)
        return call.result()

    async def _answer(self, question: Callable[[], Awaitable[object]]) -> Answer:
        answer = await heard(question)
        if not isinstance(answer, Raised):
            return Answer(answer)
        match answer.error:
            case ProviderFailure() | ProviderCannot() as error:
                return Answer(failure=Failure(error.code, self.plain(str(error))))
            case HoldfastError() as error:
                return Answer(failure=Failure(error.code, self.plain(str(error))), cut_off=True)
        # Where it broke is not known, nor what it had done by then.
        return Answer(failure=Failure("memory_failed", self.plain(answer.words)), cut_off=True)

    def plain(self, text: str) -> str:
        """A provider's words as they can be kept: without secrets, not too long, and text at all."""
        return self._mask(text.encode("utf-8", "replace").decode())[:DETAIL_CHARS_MAX]


_TOO_MUCH = "it answered with more than is taken"


class ProviderSlow(ProviderFailure):
    """Memory gave no answer within {within_s} s."""


class Raised(msgspec.Struct, frozen=True):
    """What somebody else's code raised in place of an answer."""

    error: BaseException

    @property
    def words(self) -> str:
        """The error in words, even where it has none that can be had."""
        kind = type(self.error).__name__
        said = heard_now(lambda: str(self.error))
        return f"{kind}: {said}" if isinstance(said, str) and said else kind


async def heard(ask: Callable[[], Awaitable[object]]) -> object:
    """What somebody else's code returns, or `Raised`: whatever it raises ends nothing but itself.

    Being stopped passes: who awaits this looks whether it was stopped, or gave up by itself.
    """
    try:
        return await ask()
    except asyncio.CancelledError:
        raise
    # Also what is no Exception: raised in a task, it would end the loop that everything runs on.
    except BaseException as error:
        return Raised(error)


def heard_now(ask: Callable[[], object]) -> object:
    """As `heard`, of code that nobody waits for."""
    try:
        return ask()
    except BaseException as error:
        return Raised(error)


async def in_time(
    kind: type[T], ask: Callable[[], Awaitable[object]], within_s: float, most: int | None = None
) -> T:
    """What a provider answers when it is asked, if that is a `kind`. One that comes later is dropped.

    Of several memories the first `most` are looked at. Raises ProviderSlow, ProviderFailure, and the errors
    of ours that a provider is meant to raise.
    """
    task = asyncio.create_task(heard(ask))
    task.add_done_callback(_hear)
    try:
        await asyncio.wait({task}, timeout=within_s)
    finally:
        is_done = task.done()
        # Not waited for: one that does not let itself be stopped must hold up nobody.
        task.cancel()
    if not is_done:
        raise ProviderSlow(within_s=f"{within_s:g}")
    if task.cancelled():
        raise ProviderFailure(detail="it gave up")
    answer = task.result()
    if not isinstance(answer, Raised):
        # As if it had come over a wire: another's code may answer with anything.
        answer = heard_now(lambda: msgspec.json.decode(_encoded(task.result(), most), type=kind))
    if isinstance(answer, Raised):
        if isinstance(answer.error, HoldfastError):
            raise answer.error
        raise ProviderFailure(detail=answer.words) from answer.error
    return cast(T, answer)


def _encoded(answer: object, most: int | None) -> bytes:
    """An answer as it would come over a wire. One that is far too long is refused before it takes long."""
    cut = _first(answer, most) if most is not None else answer
    several = cut.memories if isinstance(cut, MemoryPage) else cut
    for each in several if isinstance(several, list | tuple) else (several,):
        if isinstance(each, Memory) and max(map(len, (each.id, each.text, each.key))) > _ANSWER_BYTES_MAX:
            raise ProviderFailure(detail=_TOO_MUCH)
    encoded = msgspec.json.encode(cut)
    if len(encoded) > _ANSWER_BYTES_MAX:
        raise ProviderFailure(detail=_TOO_MUCH)
    return encoded


def _first(answer: object, most: int) -> object:
    """The first `most` of what an answer holds, where it is one that holds several."""
    match answer:
        case list() | tuple():
            return answer[:most]
        case MemoryPage(memories=list() | tuple() as memories):
            return MemoryPage(tuple(memories[:most]), answer.cursor)
    return answer


def _hear(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
