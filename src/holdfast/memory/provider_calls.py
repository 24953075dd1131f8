"""Call memory providers, which are third-party code: with a timeout, and with every error caught."""

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
"""Longer receipts and error texts are cut."""
T = TypeVar("T")
_ANSWER_BYTES_MAX = WEBHOOK_ANSWER_BYTES_MAX
"""The limit for webhooks, applied to every provider."""


class ProviderCallResult(msgspec.Struct, frozen=True):
    """The outcome of a call. `cut_off`: it is unknown whether the provider carried it out."""

    value: object = None
    failure: Failure | None = None
    cut_off: bool = False


class ProviderCaller:
    """Call providers; callers hold one of `slots` during a call."""

    def __init__(self, mask: MaskFunction, at_once: int) -> None:
        self._mask = mask
        self.slots = asyncio.Semaphore(at_once)
        self._running: set[asyncio.Task[ProviderCallResult]] = set()

    async def call(self, operation: Callable[[], Awaitable[object]], timeout_s: float) -> ProviderCallResult:
        """Return the outcome within `timeout_s`; after that, cancel the call without waiting for it."""
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
        # It is unknown what the provider had done before the error.
        return ProviderCallResult(failure=Failure("memory_failed", self.safe_text(answer.text)), cut_off=True)

    def safe_text(self, text: str) -> str:
        """Return a provider's text fit to store: masked, cut, and valid Unicode."""
        return self._mask(text.encode("utf-8", "replace").decode())[:DETAIL_CHARS_MAX]


_ANSWER_TOO_LARGE = "it answered with more than is taken"


class ProviderTimeout(ProviderFailure):
    """Memory gave no answer within {within_s} s."""


class CaughtError(msgspec.Struct, frozen=True):
    """An error that third-party code raised."""

    error: BaseException

    @property
    def text(self) -> str:
        """Return the error's type and message; the type alone if the message is empty or `str` fails."""
        kind = type(self.error).__name__
        message = catch_errors_sync(lambda: str(self.error))
        return f"{kind}: {message}" if isinstance(message, str) and message else kind


async def catch_errors(operation: Callable[[], Awaitable[object]]) -> object:
    """Return what third-party code returns, or a `CaughtError`.

    Cancellation passes through: the caller checks whether its own task was cancelled.
    """
    try:
        return await operation()
    except asyncio.CancelledError:
        raise
    # BaseException too: raised in a task, it would stop the event loop.
    except BaseException as error:
        return CaughtError(error)


def catch_errors_sync(operation: Callable[[], object]) -> object:
    """Do as `catch_errors` for a synchronous function."""
    try:
        return operation()
    except BaseException as error:
        return CaughtError(error)


async def call_with_timeout(
    kind: type[T], operation: Callable[[], Awaitable[object]], timeout_s: float, limit: int | None = None
) -> T:
    """Return a provider's answer as a `kind`, dropping one that arrives after `timeout_s`.

    Only the first `limit` memories are read. Raises ProviderTimeout, ProviderFailure, and the errors that the
    `Provider` port declares.
    """
    task = asyncio.create_task(catch_errors(operation))
    task.add_done_callback(_retrieve_exception)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    finally:
        is_done = task.done()
        # Not awaited: a provider that ignores cancellation must not block the caller.
        task.cancel()
    if not is_done:
        raise ProviderTimeout(within_s=f"{timeout_s:g}")
    if task.cancelled():
        raise ProviderFailure(detail="it gave up")
    answer = task.result()
    if not isinstance(answer, CaughtError):
        # Encoded and decoded to validate it: third-party code may return anything.
        answer = catch_errors_sync(lambda: msgspec.json.decode(_encoded(task.result(), limit), type=kind))
    if isinstance(answer, CaughtError):
        if isinstance(answer.error, HoldfastError):
            raise answer.error
        raise ProviderFailure(detail=answer.text) from answer.error
    return cast(T, answer)


def _encoded(answer: object, limit: int | None) -> bytes:
    """Return the answer as JSON; refuse a far too large one before encoding it."""
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
    """Return the answer with its first `limit` items, if it holds several."""
    match answer:
        case list() | tuple():
            return answer[:limit]
        case MemoryPage(memories=list() | tuple() as memories):
            return MemoryPage(tuple(memories[:limit]), answer.cursor)
    return answer


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
