"""Asking a provider with patience for so long and no longer, whatever it does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from holdfast.domain.errors import HoldfastError, ProviderFailure

T = TypeVar("T")


class ProviderSlow(ProviderFailure):
    """Memory gave no answer within {within_s} s."""


async def in_time(kind: type[T], ask: Callable[[], Awaitable[object]], within_s: float) -> T:
    """What a provider answers when it is asked, if that is a `kind`. One that comes later is dropped.

    Raises ProviderSlow, ProviderFailure, and the errors of ours that a provider is meant to raise.
    """
    task = asyncio.create_task(_asked(ask))
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
    try:
        # As if it had come over a wire: another's code may answer with anything.
        return msgspec.json.decode(msgspec.json.encode(task.result()), type=kind)
    except HoldfastError:
        raise
    # The edge of somebody else's code: whatever it raises is how it failed.
    except Exception as error:
        raise ProviderFailure(detail=f"{type(error).__name__}: {error}") from error


async def _asked(ask: Callable[[], Awaitable[object]]) -> object:
    return await ask()


def _hear(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
