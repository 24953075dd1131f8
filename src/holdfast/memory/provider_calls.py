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
from holdfast.domain.secrets import MaskFunction

DETAIL_CHARS_MAX = 500
"""What is kept of a receipt, or of what a provider says went wrong."""
T = TypeVar("T")
_ANSWER_BYTES_MAX = WEBHOOK_ANSWER_BYTES_MAX
"""As much as may come over a wire."""


class ProviderCallResult(msgspec.Struct, frozen=True):
    """What came of a call. `cut_off`: nobody knows whether it was carried out."""

    value: object = None
    failure: Failure | None = None
    cut_off: bool = False


class ProviderCaller:
    """Asks providers; a caller holds one of `slots` while it does."""

    def __init__(self, mask: MaskFunction, at_once: int) -> None:
        self._mask = mask
        self.slots = asyncio.Semaphore(at_once)
        self._running: set[asyncio.Task[ProviderCallResult]] = set()

    async def call(self, operation: Callable[[], Awaitable[object]], timeout_s: float) -> ProviderCallResult:
        """Wait for the answer, but no longer than `within_s`: then the call is stopped, not waited for."""
        task = asyncio.create_task(self._run(operation))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({task}, timeout=timeout_s)
        finally:
            task.cancel()
        if not task.done():
            detail = f"there was no answer within {timeout_s:g} s"
            return ProviderCallResult(failure=Failure("memory_timed_out", detail), cut_off=True)
        if task.cancelled():
            return ProviderCallResult(failure=Failure("memory_failed", "the call broke off"), cut_off=True)
        return task.result()

    async def _run(self, operation: Callable[[], Awaitable[object]]) -> ProviderCallResult:
        answer = await catch_errors(operation)
        if not isinstance(answer, CaughtError):
            return ProviderCallResult(answer)
        match answer.error:
            case ProviderFailure() | ProviderCannot() as error:
                return ProviderCallResult(failure=Failure(error.code, self.safe_text(str(error))))
            case HoldfastError() as error:
                return ProviderCallResult(
                    failure=Failure(error.code, self.safe_text(str(error))), cut_off=True
                )
        # Where it broke is not known, nor what it had done by then.
        return ProviderCallResult(failure=Failure("memory_failed", self.safe_text(answer.text)), cut_off=True)

    def safe_text(self, text: str) -> str:
        """A provider's words as they can be kept: without secrets, not too long, and text at all."""
        return self._mask(text.encode("utf-8", "replace").decode())[:DETAIL_CHARS_MAX]


_ANSWER_TOO_LARGE = "it answered with more than is taken"


class ProviderTimeout(ProviderFailure):
    """Memory gave no answer within {within_s} s."""


class CaughtError(msgspec.Struct, frozen=True):
    """What somebody else's code raised in place of an answer."""

    error: BaseException

    @property
    def text(self) -> str:
        """The error in words, even where it has none that can be had."""
        kind = type(self.error).__name__
        message = catch_errors_sync(lambda: str(self.error))
        return f"{kind}: {message}" if isinstance(message, str) and message else kind


async def catch_errors(operation: Callable[[], Awaitable[object]]) -> object:
    """What somebody else's code returns, or `Raised`: whatever it raises ends nothing but itself.

    Being stopped passes: who awaits this looks whether it was stopped, or gave up by itself.
    """
    try:
        return await operation()
    except asyncio.CancelledError:
        raise
    # Also what is no Exception: raised in a task, it would end the loop that everything runs on.
    except BaseException as error:
        return CaughtError(error)


def catch_errors_sync(operation: Callable[[], object]) -> object:
    """As `heard`, of code that nobody waits for."""
    try:
        return operation()
    except BaseException as error:
        return CaughtError(error)


async def call_with_timeout(
    kind: type[T], operation: Callable[[], Awaitable[object]], timeout_s: float, limit: int | None = None
) -> T:
    """What a provider answers when it is asked, if that is a `kind`. One that comes later is dropped.

    Of several memories the first `most` are looked at. Raises ProviderTimeout, ProviderFailure, and the errors
    of ours that a provider is meant to raise.
    """
    task = asyncio.create_task(catch_errors(operation))
    task.add_done_callback(_retrieve_exception)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        is_done = task.done()
        # Not waited for: one that does not let itself be stopped must hold up nobody.
        task.cancel()
    if not is_done:
        raise ProviderTimeout(within_s=f"{timeout_s:g}")
    if task.cancelled():
        raise ProviderFailure(detail="it gave up")
    answer = task.result()
    if not isinstance(answer, CaughtError):
        # As if it had come over a wire: another's code may answer with anything.
        answer = catch_errors_sync(lambda: msgspec.json.decode(_encoded(task.result(), limit), type=kind))
    if isinstance(answer, CaughtError):
        if isinstance(answer.error, HoldfastError):
            raise answer.error
        raise ProviderFailure(detail=answer.text) from answer.error
    return cast(T, answer)


def _encoded(answer: object, limit: int | None) -> bytes:
    """An answer as it would come over a wire. One that is far too long is refused before it takes long."""
    cut = _first(answer, limit) if limit is not None else answer
    several = cut.memories if isinstance(cut, MemoryPage) else cut
    for each in several if isinstance(several, list | tuple) else (several,):
        if isinstance(each, Memory) and max(map(len, (each.id, each.text, each.key))) > _ANSWER_BYTES_MAX:
            raise ProviderFailure(detail=_ANSWER_TOO_LARGE)
    encoded = msgspec.json.encode(cut)
    if len(encoded) > _ANSWER_BYTES_MAX:
        raise ProviderFailure(detail=_ANSWER_TOO_LARGE)
    return encoded


def _first(answer: object, limit: int) -> object:
    """The first `most` of what an answer holds, where it is one that holds several."""
    match answer:
        case list() | tuple():
            return answer[:limit]
        case MemoryPage(memories=list() | tuple() as memories):
            return MemoryPage(tuple(memories[:limit]), answer.cursor)
    return answer


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
