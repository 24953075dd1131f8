"""A model server that writes Markdown at a steady rate: Chat Completions over plain sockets.

The last message of a request says what to stream: `SEED:TOKENS@RATE`, followed by `!` for one block that
never closes.
"""

import asyncio
import json
import re
import sys
import time

import uvloop

from bench.page.answers import streamed
from bench.turn.fake_model import END, HEAD

REQUEST_PATTERN = re.compile(rb"(\d+):(\d+)@(\d+)(!?)")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int((re.search(rb"content-length: (\d+)", head, re.IGNORECASE) or [0, 0])[1])
    asked = REQUEST_PATTERN.findall(await reader.readexactly(length))
    seed, count, rate, unbroken = asked[-1] if asked else (b"0", b"1", b"1", b"")
    writer.write(HEAD)
    start = time.monotonic()
    for i, token in enumerate(streamed(int(seed), int(count), unbroken=bool(unbroken))):
        wait = start + i / int(rate) - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        if writer.transport.is_closing():
            return
        writer.write(
            b"data: %s\n\n" % json.dumps({"choices": [{"index": 0, "delta": {"content": token}}]}).encode()
        )
    writer.write(END)
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
