"""Read server-sent events cheaply, so that the reader itself is not what is measured.

A reader is a protocol, not a task: it looks for tokens in the bytes as they come and records the age of each.
"""

import asyncio
import re
import time

BENCH_TOKEN = "hf_" + "b" * 43
"""The bench's access token; the server finds it in its data folder."""
TOKEN = re.compile(rb"(\d{9,19}) ")
DELTA = b"event: text_appended\n"


class StreamReader(asyncio.BufferedProtocol):
    """One stream. `ages` are of tokens, in ns, from the fake model's write, at `sent`, to this read."""

    def __init__(self, path: str, expected: int) -> None:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {BENCH_TOKEN}\r\n\r\n"
        self._request = head.encode()
        self._buffer = bytearray(1 << 16)
        self._left = b""
        self.expected = expected
        self.sent: list[int] = []
        self.ages: list[int] = []
        self.first_at = 0
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        transport.write(self._request)  # type: ignore[attr-defined]

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        now, data = time.monotonic_ns(), bytes(self._buffer[:nbytes])
        if not self.opened.done():
            self.opened.set_result(None)
        *frames, self._left = (self._left + data).split(b"\n\n")
        for frame in frames:
            # Only deltas: the settled body repeats every token.
            if DELTA in frame:
                self._record_frame(frame, now)

    def _record_frame(self, frame: bytes, now: int) -> None:
        tokens = TOKEN.findall(frame[frame.rindex(b'"text":') :])
        sent = [int(token) for token in tokens]
        self.sent += sent
        self.ages += [now - at for at in sent]
        self.first_at = self.first_at or now
        if len(self.ages) >= self.expected and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()


async def follow(port: int, path: str, expected: int) -> StreamReader:
    loop = asyncio.get_running_loop()
    _, reader = await loop.create_connection(lambda: StreamReader(path, expected), "127.0.0.1", port)
    return reader
