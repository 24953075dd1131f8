"""A webhook memory whose receiver is scripted by the test, in the same event loop."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from holdfast.domain.clock import FakeClock
from holdfast.memory.providers.webhook import DEFAULT_TIMEOUTS, MemoryWebhookTimeouts, WebhookProvider
from tests.support.example_receiver_process import SECRET

AT = 1_700_000_000_500
PASSWORD = "open-sesame-42"
TOKEN = "t0ken-in-the-query"

Answers = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ReceivedRequests(msgspec.Struct):
    """The requests of a receiver: raw bodies with their headers."""

    requests: list[tuple[bytes, dict[str, str]]]

    def body(self, n: int = -1) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.requests[n][0])
        return decoded

    def header(self, name: str, n: int = -1) -> str:
        return self.requests[n][1][name]


@asynccontextmanager
async def webhook_provider(
    answers: Answers, timeouts: MemoryWebhookTimeouts = DEFAULT_TIMEOUTS, secret: str = SECRET
) -> AsyncIterator[tuple[WebhookProvider, ReceivedRequests]]:
    """Yield a provider, and the requests to its address. The address holds two secrets of its own."""
    received = ReceivedRequests([])

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        received.requests.append((await request.read(), headers))
        return await answers(request)

    app = web.Application(client_max_size=100_000_000)
    app.router.add_post("/hook", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    numbers = iter(range(1, 1_000))
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://ada:{PASSWORD}@127.0.0.1:{runner.addresses[0][1]}/hook?token={TOKEN}"
        it = WebhookProvider(url, secret, FakeClock(AT), lambda: f"fresh_{next(numbers)}", timeouts)
        try:
            yield it, received
        finally:
            await it.close()
    finally:
        await runner.cleanup()


def json_answer(body: Any, status: int = 200, **headers: str) -> Answers:
    """Return an answer with `body`, as JSON unless it is bytes."""

    async def answer(request: web.Request) -> web.StreamResponse:
        raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return web.Response(status=status, body=raw, headers=headers, content_type="application/json")

    return answer
