"""Two minimal prototypes of the path: accept a message, ask a model, pass its tokens on.

`bare` passes every chunk on as it comes and stores nothing. `durable` first makes it durable: one SQLite
file, one writer thread, group commit, one row per token; no sessions, no recovery, no search.
"""

import asyncio
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import apsw
import msgspec
import uvicorn
import uvloop

Send = Callable[[dict[str, Any]], Awaitable[None]]


class _Delta(msgspec.Struct):
    content: str = ""


class _Choice(msgspec.Struct):
    delta: _Delta


class _Chunk(msgspec.Struct):
    choices: list[_Choice]


DECODE = msgspec.json.Decoder(_Chunk).decode


class PrototypeLog:
    """Commit rows on a thread and resolve their futures on the loop."""

    def __init__(self, path: str) -> None:
        self.db = apsw.Connection(path)
        self.db.pragma("journal_mode", "wal")
        self.db.pragma("synchronous", 2)
        self.db.execute("CREATE TABLE IF NOT EXISTS log (n INTEGER PRIMARY KEY, stream INTEGER, body BLOB)")
        self.loop = asyncio.get_running_loop()
        self.pending: list[tuple[int, bytes, Callable[[], None]]] = []
        self.bell = threading.Semaphore(0)
        threading.Thread(target=self._work, daemon=True).start()

    def add(self, stream: int, body: bytes, then: Callable[[], None]) -> None:
        self.pending.append((stream, body, then))
        self.bell.release()

    def _work(self) -> None:
        while True:
            self.bell.acquire()
            batch, self.pending = self.pending, []
            if batch:
                self.db.execute("BEGIN IMMEDIATE")
                for stream, body, _ in batch:
                    self.db.execute("INSERT INTO log (stream, body) VALUES (?, ?)", (stream, body))
                self.db.execute("COMMIT")
                self.loop.call_soon_threadsafe(self._notify, batch)

    def _notify(self, batch: list[tuple[int, bytes, Callable[[], None]]]) -> None:
        for _, _, then in batch:
            then()


class PrototypeApp:
    def __init__(self, model_port: int, file: str) -> None:
        self.url = f"http://127.0.0.1:{model_port}/v1/chat/completions"
        self.file = file
        self.log: PrototypeLog | None = None
        self.session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        if self.session is None:
            self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
            self.log = PrototypeLog(self.file) if self.file else None
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        ready: asyncio.Queue[bytes] = asyncio.Queue()
        asking = asyncio.create_task(self._ask(scope["query_string"].decode(), ready))
        while frame := await ready.get():
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await asking
        await send({"type": "http.response.body", "body": b""})

    async def _ask(self, model: str, ready: "asyncio.Queue[bytes]") -> None:
        assert self.session is not None
        seq, left = 0, b""
        async with self.session.post(self.url, json={"model": model, "stream": True}) as response:
            async for piece in response.content.iter_any():
                *lines, left = (left + piece).split(b"\n\n")
                for line in lines:
                    if not line.startswith(b'data: {"id"'):
                        continue
                    text = DECODE(line[6:]).choices[0].delta.content
                    seq += 1
                    body = msgspec.json.encode({"seq": seq, "kind": "text_appended", "text": text})
                    self._forward(b"id: %d\nevent: text_appended\ndata: %s\n\n" % (seq, body), ready)
        self._forward(b"", ready)

    def _forward(self, frame: bytes, ready: "asyncio.Queue[bytes]") -> None:
        if self.log is None:
            ready.put_nowait(frame)
        else:
            self.log.add(1, frame, lambda: ready.put_nowait(frame))


async def main() -> None:
    app = PrototypeApp(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", lifespan="off", http="httptools")
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    uvloop.run(main())
