"""A loopback receiver for the webhook channel: it verifies signatures itself, and injects faults."""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

from tests.support.loop_thread import run_in_thread

WAIT_S = 60.0
Fault = Literal["silent", "dropped"] | tuple[int, dict[str, str]]
"""A fault: no reply or a closed connection after the call; or a refusal with a status and headers."""


def headers_for(key: bytes, body: bytes, webhook_id: str = "", at: float | None = None) -> dict[str, str]:
    """Return the headers of a call that is signed as Standard Webhooks specifies."""
    webhook_id = webhook_id or f"msg_{secrets.token_hex(8)}"
    stamp = str(int(time.time() if at is None else at))
    headers = hmac.new(key, f"{webhook_id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": stamp,
        "webhook-signature": f"v1,{base64.b64encode(headers).decode()}",
        "content-type": "application/json",
    }


def key_in(text: str) -> bytes:
    return base64.b64decode(text.strip().removeprefix("whsec_"))


@dataclass
class WebhookReceiver:
    """Keep what each chat shows. `key` is set once the server has made one."""

    url: str = ""
    key: bytes = b""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Every call with a valid signature: its id and its body."""
    unsigned: int = 0
    returns_ids: bool = True
    files: dict[str, bytes] = field(default_factory=dict)
    _shown: dict[str, dict[str, str]] = field(default_factory=dict)
    _faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    def add_faults(self, kind: str, *faults: Fault) -> None:
        """Inject faults into the next calls of that type, one each."""
        self._faults[kind].extend(faults)

    def clear_faults(self) -> None:
        """Remove the remaining faults."""
        self._faults.clear()

    def texts(self, chat: str) -> list[str]:
        """Return the texts that a chat shows now, in order."""
        return list(self._shown.get(chat, {}).values())

    async def wait_until(self, condition: Callable[[], Any], within_s: float = WAIT_S) -> Any:
        deadline = time.monotonic() + within_s
        while not (found := condition()):
            assert time.monotonic() < deadline, f"not within {within_s} s: {self._shown}, {self.calls[-5:]}"
            await asyncio.sleep(0.01)
        return found

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        webhook_id = request.headers.get("webhook-id", "")
        expected = headers_for(self.key, body, webhook_id, float(request.headers["webhook-timestamp"]))
        if expected["webhook-signature"] != request.headers["webhook-signature"]:
            self.unsigned += 1
            return web.Response(status=401)
        if request.method == "GET":
            return web.Response(body=self.files[request.path])
        message = json.loads(body)
        self.calls.append((webhook_id, message))
        faults = self._faults[message["type"]]
        fault = faults.popleft() if faults else None
        if isinstance(fault, tuple):
            return web.Response(status=fault[0], headers=fault[1], text="not now")
        answered = self._record_message(webhook_id, message)
        if fault is not None:
            assert request.transport is not None
            if fault == "silent":
                await self._closing.wait()
            request.transport.abort()
        return web.json_response({"id": answered}) if self.returns_ids else web.Response(status=204)

    def _record_message(self, webhook_id: str, body: dict[str, Any]) -> str:
        chat = self._shown.setdefault(body.get("chat", ""), {})
        own = f"own-{webhook_id}" if self.returns_ids else webhook_id
        if body["type"] == "message":
            chat.setdefault(own, body["text"])  # The same id again is the same message.
        elif body["type"] == "edit":
            assert body["id"] in chat, f"{body['id']} is not a message here"
            chat[body["id"]] = body["text"]
        return own


@asynccontextmanager
async def webhook_receiver(receiver: WebhookReceiver | None = None) -> AsyncIterator[WebhookReceiver]:
    """Run a receiver in the current event loop."""
    receiver = receiver or WebhookReceiver()
    receiver._closing = asyncio.Event()
    app = web.Application(client_max_size=100_000_000)
    app.router.add_route("*", "/{path:.*}", receiver.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/answers"
        yield receiver
    finally:
        receiver._closing.set()
        await runner.cleanup()


def webhook_receiver_in_thread(
    receiver: WebhookReceiver | None = None,
) -> AbstractContextManager[WebhookReceiver]:
    """Run a receiver beside a test that blocks."""
    return run_in_thread(webhook_receiver(receiver))
