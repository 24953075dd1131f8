"""Read response bodies and decompress them on the fly, up to a limit."""

import zlib
from collections.abc import AsyncIterator

from holdfast.tools.arguments import ToolError

ACCEPTED_ENCODINGS = "gzip, deflate"
"""The value of Accept-Encoding."""
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


async def read_body(chunks: AsyncIterator[bytes], encoding: str, bytes_max: int) -> tuple[bytes, bool]:
    """Return the beginning of a body, decompressed, and whether more follows. Raises ToolError.

    Both the received and the decompressed bytes stay within `bytes_max`.
    """
    decoder = _decoder_for(encoding.strip().lower())
    body, received_bytes = bytearray(), 0
    async for chunk in chunks:
        received_bytes += len(chunk)
        body += decoder.feed(chunk, bytes_max + 1 - len(body))
        if len(body) > bytes_max or received_bytes > bytes_max:
            return bytes(body[:bytes_max]), True
    return bytes(body), not decoder.is_complete


class _IdentityDecoder:
    is_complete = True

    def feed(self, chunk: bytes, room: int) -> bytes:
        return chunk[:room]


class _DeflateDecoder:
    """Decompress gzip, or deflate with or without its header, since some servers omit it."""

    def __init__(self, may_be_raw: bool) -> None:
        self._may_be_raw = may_be_raw
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._has_begun = False

    @property
    def is_complete(self) -> bool:
        return self._stream.eof or not self._has_begun

    def feed(self, chunk: bytes, room: int) -> bytes:
        if self._stream.eof or not chunk:
            return b""  # Bytes after the end of the stream have no meaning.
        try:
            return self._inflate(chunk, room)
        except zlib.error:
            if self._has_begun or not self._may_be_raw:
                raise ToolError("the page is packed, and cannot be unpacked") from None
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            return self._inflate(chunk, room)
        except zlib.error:
            raise ToolError("the page is packed, and cannot be unpacked") from None

    def _inflate(self, chunk: bytes, room: int) -> bytes:
        found = self._stream.decompress(chunk, room)
        self._has_begun = True
        return found


def _decoder_for(encoding: str) -> _IdentityDecoder | _DeflateDecoder:
    if encoding in ("", "identity"):
        return _IdentityDecoder()
    if encoding in ("gzip", "x-gzip", "deflate"):
        return _DeflateDecoder(may_be_raw=encoding == "deflate")
    raise ToolError("the page is packed in a way that was not asked for")
