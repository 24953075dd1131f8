"""A file as it comes in over HTTP: read in pieces, judged by its beginning, cut off where it is too large.

Or too slow: files are held in memory until they are whole, and nobody is to keep that from others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.files import HEAD_BYTES, bytes_max, check_start
from holdfast.domain.limits import (
    FILE_BYTES_MAX,
    UPLOAD_FREE_BYTES,
    UPLOAD_OVERRUN_BYTES_MAX,
    UPLOAD_WAIT_S_MAX,
    UPLOAD_WINDOW_BYTES_MIN,
    UPLOAD_WINDOW_S,
    UPLOADS_BYTES_MAX,
)
from holdfast.http.asgi import Receive


class CutOff(HoldfastError):
    """The file is far longer than {limit} bytes, and was not read to its end."""

    code, status = "cut_off", 413
    headers = MappingProxyType({"connection": "close"})


class UploadBroken(HoldfastError):
    """The connection ended before the file did."""

    code, status = "upload_broken", 400


class UploadTooSlow(HoldfastError):
    """The file came too slowly: less than {bytes} bytes in {seconds} s."""

    code, status = "upload_too_slow", 408
    headers = MappingProxyType({"connection": "close"})


class TooManyUploads(HoldfastError):
    """Too much is being sent at once."""

    code, status = "too_many_uploads", 503
    remedy = "Try again in a moment."
    headers = MappingProxyType({"retry-after": "2"})


Take = Callable[[int], Awaitable[None]]
"""Waits for room for so many more bytes. Raises TooManyUploads."""


class Pace(NamedTuple):
    """What must come, and in which time."""

    window_s: float = UPLOAD_WINDOW_S
    bytes_min: int = UPLOAD_WINDOW_BYTES_MIN


PACE = Pace()


class Room:
    """What may be held of all bodies together. Who came first never waits, so that none does for ever."""

    def __init__(
        self,
        bytes_max: int = UPLOADS_BYTES_MAX,
        free_bytes: int = UPLOAD_FREE_BYTES,
        wait_s: float = UPLOAD_WAIT_S_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._free_bytes = free_bytes
        self._wait_s = wait_s
        self._held: dict[object, int] = {}
        self._left = asyncio.Event()

    @property
    def held_bytes(self) -> int:
        return sum(self._held.values())

    @contextmanager
    def entered(self) -> Generator[Take]:
        """While one body is held: what it takes is free again afterwards."""
        who = object()
        self._held[who] = 0
        try:
            yield partial(self._take, who)
        finally:
            del self._held[who]
            left, self._left = self._left, asyncio.Event()
            left.set()

    async def _take(self, who: object, more: int) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while not self._fits(who, more):
                    await self._left.wait()
        except TimeoutError:
            raise TooManyUploads() from None
        self._held[who] += more

    def _fits(self, who: object, more: int) -> bool:
        return (
            self._held[who] + more <= self._free_bytes
            or self.held_bytes + more <= self._bytes_max
            or who is next(iter(self._held))
        )


class Incoming:
    """One body. `claimed` is its Content-Type; `announced` its Content-Length, if it says one.

    Neither is believed. What is held never exceeds the limit for what the content turns out to be.
    """

    def __init__(self, receive: Receive, claimed: str, announced: int | None, pace: Pace = PACE) -> None:
        self._receive = receive
        self._pace = pace
        self._window_ends = asyncio.get_running_loop().time() + pace.window_s
        self._window_bytes = 0
        self._claimed = claimed
        self._announced = announced
        self._ended = False

    async def read(self, take: Take) -> bytes:
        """All of it. Raises UploadBroken and UploadTooSlow, or UnsupportedFile, TooLarge and TooManyUploads:
        then discard the rest."""
        announced = self._announced or 0
        if announced > FILE_BYTES_MAX:
            raise _too_large(announced, FILE_BYTES_MAX)
        held, limit = bytearray(), 0
        try:
            while not self._ended:
                piece = await self._piece()
                await take(len(piece))
                held += piece
                if not limit and (len(held) >= HEAD_BYTES or self._ended):
                    limit = bytes_max(check_start(bytes(held[:HEAD_BYTES]), self._claimed))
                if limit and max(len(held), announced) > limit:
                    raise _too_large(announced, limit)
            return bytes(held)
        finally:
            # A refusal keeps its frames, and this with them, while the rest is still being read.
            held.clear()

    async def discard(self) -> None:
        """Read on and keep nothing, so that the sender gets to read the refusal.

        Raises CutOff, UploadBroken, UploadTooSlow.
        """
        left = UPLOAD_OVERRUN_BYTES_MAX
        if self._announced is not None and self._announced > left:
            raise CutOff(limit=FILE_BYTES_MAX)
        while not self._ended:
            left -= len(await self._piece())
            if left < 0:
                raise CutOff(limit=FILE_BYTES_MAX)

    async def _piece(self) -> bytes:
        message = await self._message()
        if message["type"] == "http.disconnect":
            raise UploadBroken()
        self._ended = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        self._window_bytes += len(piece)
        return piece

    async def _message(self) -> dict[str, Any]:
        """What comes next. Raises UploadTooSlow."""
        while True:
            try:
                async with asyncio.timeout_at(self._window_ends):
                    return await self._receive()
            except TimeoutError:
                if self._window_bytes < self._pace.bytes_min:
                    raise UploadTooSlow(bytes=self._pace.bytes_min, seconds=self._pace.window_s) from None
            self._window_ends = asyncio.get_running_loop().time() + self._pace.window_s
            self._window_bytes = 0


def _too_large(size_bytes: int, limit: int) -> TooLarge:
    """`size_bytes` is 0 where nobody has said how much there is."""
    size = f"{size_bytes:,} bytes" if size_bytes else f"more than {limit:,} bytes"
    return TooLarge(what="The file", size=size, limit=f"{limit:,} bytes")
