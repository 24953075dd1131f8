"""A file as it comes in over HTTP: read in pieces, judged by its beginning, cut off where it is too large."""

from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.files import HEAD_BYTES, bytes_max, check_start
from holdfast.domain.limits import FILE_BYTES_MAX, UPLOAD_OVERRUN_BYTES_MAX
from holdfast.server.asgi import Receive


class CutOff(HoldfastError):
    """The file is far longer than {limit} bytes, and was not read to its end."""

    code, status = "cut_off", 413


class UploadBroken(HoldfastError):
    """The connection ended before the file did."""

    code, status = "upload_broken", 400


class Incoming:
    """One body. `claimed` is its Content-Type; `announced` its Content-Length, if it says one.

    Neither is believed. What is held never exceeds the limit for what the content turns out to be.
    """

    def __init__(self, receive: Receive, claimed: str, announced: int | None) -> None:
        self._receive = receive
        self._claimed = claimed
        self._announced = announced
        self._ended = False

    async def read(self) -> bytes:
        """All of it. Raises UploadBroken, or UnsupportedFile and TooLarge: then discard the rest."""
        if self._announced is not None and self._announced > FILE_BYTES_MAX:
            raise TooLarge(what="The file", size=self._announced, limit=FILE_BYTES_MAX)
        held, limit = bytearray(), 0
        try:
            while not self._ended:
                held += await self._piece()
                if not limit and (len(held) >= HEAD_BYTES or self._ended):
                    limit = bytes_max(check_start(bytes(held[:HEAD_BYTES]), self._claimed))
                if limit and len(held) > limit:
                    raise TooLarge(what="The file", size="more", limit=limit)
            return bytes(held)
        finally:
            # A refusal keeps its frames, and this with them, while the rest is still being read.
            held.clear()

    async def discard(self) -> None:
        """Read on and keep nothing, so that the sender gets to read the refusal. Raises CutOff."""
        left = UPLOAD_OVERRUN_BYTES_MAX
        if self._announced is not None and self._announced > left:
            raise CutOff(limit=FILE_BYTES_MAX)
        while not self._ended:
            left -= len(await self._piece())
            if left < 0:
                raise CutOff(limit=FILE_BYTES_MAX)

    async def _piece(self) -> bytes:
        # Whoever sends too slowly is cut off by the connection itself.
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise UploadBroken()
        self._ended = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece
