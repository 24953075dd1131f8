"""Bodies of answers as they come over the network: unpacked while they come, and never past a limit."""

import zlib
from collections.abc import AsyncIterator

from holdfast.tools.arguments import Refused

ACCEPTED = "gzip, deflate"
"""What a server is told that it may send."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


async def read_body(chunks: AsyncIterator[bytes], encoding: str, bytes_max: int) -> tuple[bytes, bool]:
    """The beginning of a body, unpacked, and whether more follows. Raises Refused.

    Neither what comes nor what is made of it grows past `bytes_max`.
    """
    unpack = _unpacker(encoding.strip().lower())
    body, taken = bytearray(), 0
    async for chunk in chunks:
        taken += len(chunk)
        body += unpack.feed(chunk, bytes_max + 1 - len(body))
        if len(body) > bytes_max or taken > bytes_max:
            return bytes(body[:bytes_max]), True
    return bytes(body), not unpack.is_whole


class _Plain:
    is_whole = True

    def feed(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _Deflated:
    """gzip, or deflate with its header or, as some servers send it, without."""

    def __init__(self, may_be_raw: bool) -> None:
        self._may_be_raw = may_be_raw
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_begun = False

    @property
    def is_whole(self) -> bool:
        return self._stream.eof or not self._has_begun

    def feed(self, chunk: bytes, room: int) -> bytes:
        if self._stream.eof or not chunk:
            return b""  # What follows the end belongs to nothing.
        try:
            return self._inflate(chunk, room)
        except zlib.error:
            if self._has_begun or not self._may_be_raw:
                raise Refused("the page is packed, and cannot be unpacked") from None
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return self._inflate(chunk, room)
        except zlib.error:
            raise Refused("the page is packed, and cannot be unpacked") from None

    def _inflate(self, chunk: bytes, room: int) -> bytes:
        found = self._stream.decompress(chunk, room)
        self._has_begun = True
        return found


def _unpacker(encoding: str) -> _Plain | _Deflated:
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _Deflated(may_be_raw=encoding == "deflate")
    raise Refused("the page is packed in a way that was not asked for")
