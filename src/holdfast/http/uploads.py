"""Read an uploaded file in chunks: detect its type from its start, and refuse it if too large or too slow.

Files are buffered in memory until they are complete, so a slow upload must not hold memory that others need.
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


class UploadCutOff(HoldfastError):
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


Reserve = Callable[[int], Awaitable[None]]
"""Wait until so many more bytes may be buffered. Raises TooManyUploads."""


class MinUploadRate(NamedTuple):
    """The fewest bytes that must arrive in each time window."""

    window_s: float = UPLOAD_WINDOW_S
    bytes_min: int = UPLOAD_WINDOW_BYTES_MIN


MIN_UPLOAD_RATE = MinUploadRate()


class UploadBudget:
    """The memory that all uploads share. The oldest upload never waits, so that none waits for ever."""

    def __init__(
        self,
        bytes_max: int = UPLOADS_BYTES_MAX,
        free_bytes: int = UPLOAD_FREE_BYTES,
        wait_s: float = UPLOAD_WAIT_S_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._free_bytes = free_bytes
        self._wait_s = wait_s
        self._reserved: dict[object, int] = {}
        self._released = asyncio.Event()

    @property
    def reserved_bytes(self) -> int:
        return sum(self._reserved.values())

    @contextmanager
    def reservation(self) -> Generator[Reserve]:
        """Yield a function that reserves memory for one upload; free it at the end."""
        owner = object()
        self._reserved[owner] = 0
        try:
            yield partial(self._reserve, owner)
        finally:
            del self._reserved[owner]
            released, self._released = self._released, asyncio.Event()
            released.set()

    async def _reserve(self, owner: object, more: int) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                while not self._fits(owner, more):
                    await self._released.wait()
        except TimeoutError:
            raise TooManyUploads() from None
        self._reserved[owner] += more

    def _fits(self, owner: object, more: int) -> bool:
        return (
            self._reserved[owner] + more <= self._free_bytes
            or self.reserved_bytes + more <= self._bytes_max
            or owner is next(iter(self._reserved))
        )


class IncomingUpload:
    """The body of one upload. It trusts neither `content_type` nor `content_length`.

    The buffer never exceeds the limit for the detected type.
    """

    def __init__(
        self,
        receive: Receive,
        content_type: str,
        content_length: int | None,
        min_rate: MinUploadRate = MIN_UPLOAD_RATE,
    ) -> None:
        self._receive = receive
        self._min_rate = min_rate
        self._window_ends = asyncio.get_running_loop().time() + min_rate.window_s
        self._window_bytes = 0
        self._content_type = content_type
        self._content_length = content_length
        self._ended = False

    async def read(self, reserve: Reserve) -> bytes:
        """Return the whole body.

        Raises UploadBroken and UploadTooSlow, or UnsupportedFile, TooLarge and TooManyUploads: call `discard`
        after those.
        """
        content_length = self._content_length or 0
        if content_length > FILE_BYTES_MAX:
            raise _too_large(content_length, FILE_BYTES_MAX)
        buffer, limit = bytearray(), 0
        try:
            while not self._ended:
                chunk = await self._next_chunk()
                await reserve(len(chunk))
                buffer += chunk
                if not limit and (len(buffer) >= HEAD_BYTES or self._ended):
                    limit = bytes_max(check_start(bytes(buffer[:HEAD_BYTES]), self._content_type))
                if limit and max(len(buffer), content_length) > limit:
                    raise _too_large(content_length, limit)
            return bytes(buffer)
        finally:
            # The traceback of a refusal keeps this buffer alive while the rest is still being read.
            buffer.clear()

    async def discard(self) -> None:
        """Read the rest without storing it, so that the sender gets to read the response.

        Raises UploadCutOff, UploadBroken, UploadTooSlow.
        """
        remaining = UPLOAD_OVERRUN_BYTES_MAX
        if self._content_length is not None and self._content_length > remaining:
            raise UploadCutOff(limit=FILE_BYTES_MAX)
        while not self._ended:
            remaining -= len(await self._next_chunk())
            if remaining < 0:
                raise UploadCutOff(limit=FILE_BYTES_MAX)

    async def _next_chunk(self) -> bytes:
        message = await self._next_message()
        if message["type"] == "http.disconnect":
            raise UploadBroken()
        self._ended = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        self._window_bytes += len(chunk)
        return chunk

    async def _next_message(self) -> dict[str, Any]:
        """Return the next ASGI message. Raises UploadTooSlow."""
        while True:
            try:
                async with asyncio.timeout_at(self._window_ends):
                    return await self._receive()
            except TimeoutError:
                if self._window_bytes < self._min_rate.bytes_min:
                    raise UploadTooSlow(
                        bytes=self._min_rate.bytes_min, seconds=self._min_rate.window_s
                    ) from None
            self._window_ends = asyncio.get_running_loop().time() + self._min_rate.window_s
            self._window_bytes = 0


def _too_large(size_bytes: int, limit: int) -> TooLarge:
    """Return the error; `size_bytes` is 0 if the size is unknown."""
    size = f"{size_bytes:,} bytes" if size_bytes else f"more than {limit:,} bytes"
    return TooLarge(what="The file", size=size, limit=f"{limit:,} bytes")
