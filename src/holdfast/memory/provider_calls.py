"""Calls to providers: somebody else's code, which may fail in any way, take for ever, or refuse to stop.

Whatever it does, the caller gets an answer in time.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.domain.errors import HoldfastError, ProviderCannot, ProviderFailure
from holdfast.domain.events.facts import Failure
from holdfast.domain.secrets import Masking
from holdfast.memory.time_limits import Raised, heard

DETAIL_CHARS_MAX = 500
"""What is kept of a receipt, or of what a provider says went wrong."""


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
