"""A model server that answers at a steady rate and finds one fact when asked for facts: Chat Completions.

The request's `model` says how it answers a person: `TOKENS@RATE`, as in `bench.turn`.
"""

import asyncio
import re
import sys
import time

import uvloop

from bench.turn.fake_model import END, HEAD, answer

FOUND = (
    b'data: {"choices":[{"index":0,"delta":{"content":'
    b'"{\\"facts\\":[{\\"text\\":\\"The user noted the moment %d.\\"}]}"}}]}\n\n'
)


async def answer_or_find(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int((re.search(rb"content-length: (\d+)", head, re.IGNORECASE) or [0, 0])[1])
    body = await reader.readexactly(length)
    if b'"tools":' not in body and b"JSON" in body:
        writer.write(HEAD + FOUND % time.monotonic_ns() + END)
        writer.close()
        return
    again = asyncio.StreamReader()
    again.feed_data(head + body)
    await answer(again, writer)


async def main() -> None:
    server = await asyncio.start_server(answer_or_find, "127.0.0.1", 0, backlog=1024, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
