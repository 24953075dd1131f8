"""A model server that only keeps time: Chat Completions over plain sockets, as cheap as can be.

Each token is the time of its sending (CLOCK_MONOTONIC, ns), so that a reader knows its age. The request's
`model` says what to stream: `TOKENS@RATE`.
"""

import asyncio
import re
import sys
import time

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
CHUNK = (
    b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"%d "}}]}\n\n'
)
END = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n'
    b"data: [DONE]\n\n"
)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int((re.search(rb"content-length: (\d+)", head, re.IGNORECASE) or [0, 0])[1])
    body = await reader.readexactly(length)
    found = re.search(rb'"model":\s*"(\d+)@([\d.]+)"', body)
    tokens, rate = (int(found[1]), float(found[2])) if found else (1, 1.0)
    writer.write(HEAD)
    transport = writer.transport
    start = time.monotonic()
    for i in range(tokens):
        wait = start + i / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        if transport.is_closing():
            return
        writer.write(CHUNK % time.monotonic_ns())
    writer.write(END)
    writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    sys.exit(uvloop.run(main()))
