"""A loopback server that answers each request with exactly the bytes of the test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class WebSite:
    """`pages` are answers by path, whole or piece by piece; `heads` are the request heads in order."""

    pages: dict[str, bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]] = field(default_factory=dict)
    heads: list[str] = field(default_factory=list)
    port: int = 0
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether a client closed the connection before the end of an answer."""

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.heads.append(head)
            page = self.pages.get(head.split(" ")[1], reply("not here", status="404 Not Found"))
            if isinstance(page, bytes):
                writer.write(page)
                await writer.drain()
            else:
                await page(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            self.hung_up.set()
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def reply(
    body: str | bytes = b"", kind: str = "text/html; charset=utf-8", status: str = "200 OK", **headers: str
) -> bytes:
    """Return a whole answer."""
    body = body.encode() if isinstance(body, str) else body
    said = {"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}
    said |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items() if value)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("utf-8", "surrogateescape") + body


def redirect(to: str, status: str = "302 Found") -> bytes:
    return reply(status=status, Location=to)


@asynccontextmanager
async def web_server(site: WebSite, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[WebSite]:
    server = await asyncio.start_server(site.answer, host, port)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        await server.wait_closed()
