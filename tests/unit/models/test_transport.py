"""Connections to a model's server, which may end them when it likes."""

import asyncio
from contextlib import closing, suppress

from holdfast.models.ports import StepEnd, TextDelta
from tests.support.model_server import DONE, chunk, collect_deltas, http_model

HELLO = chunk({"content": "Hello"})
STOP = chunk({}, "stop")


async def test_a_stale_keep_alive_connection_is_retried() -> None:
    """llama.cpp says that it keeps a connection after a stream, and closes it."""
    connections, ended = 0, asyncio.Semaphore(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        body = HELLO + STOP + DONE
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
        with closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode() + body)
            # The next request comes on it, and finds it closed. After the last one, the client closes it.
            with suppress(asyncio.IncompleteReadError):
                await reader.readuntil(b"\r\n\r\n")
        ended.release()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with http_model(f"http://127.0.0.1:{port}/v1") as model:
            for _ in range(3):
                assert await collect_deltas(model) == ([TextDelta("Hello"), StepEnd("stop")], None)
        for _ in range(3):
            await ended.acquire()
    assert connections == 3
