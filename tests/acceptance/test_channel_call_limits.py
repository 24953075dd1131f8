"""The doors that chat apps call at: whoever stands there unsigned costs the server next to nothing."""

import asyncio
import contextlib
import io
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.limits import WEBHOOK_CALLS_AT_ONCE_MAX
from tests.acceptance.conftest import RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, wait_until
from tests.support.telegram_api import TOKEN, telegram_server_in_thread
from tests.support.webhook_receiver import headers_for, key_in


@pytest.fixture
def server(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[RunningServer]:
    """With both channels, of which nobody takes what the webhook sends."""
    with telegram_server_in_thread() as telegram:
        environ = environ_for(speaker) | {
            "TELEGRAM_BOT_TOKEN": TOKEN,
            "HOLDFAST_TELEGRAM_API_URL": telegram.url,
            "HOLDFAST_CHANNEL_WEBHOOK_URL": "http://127.0.0.1:9/answers",
        }
        with cli_in(tmp_path, **environ) as command:
            yield command.serve("--port", "0")


async def test_an_unauthenticated_channel_call_is_refused_before_its_body_is_read(
    server: RunningServer,
) -> None:
    for path in ("webhook", "telegram"):
        for headers in ("", "webhook-id: x\r\nwebhook-timestamp: 5\r\nwebhook-signature: v1,AAAA\r\n"):
            with _open_unfinished_call(server, path, headers) as call:
                answer = await asyncio.to_thread(call.recv, 100)
                assert answer.split()[1] in (b"401", b"429"), "nothing of its body was sent"


async def test_concurrent_channel_calls_are_limited(server: RunningServer) -> None:
    headers = f"webhook-id: x\r\nwebhook-timestamp: {int(time.time())}\r\nwebhook-signature: v1,AAAA\r\n"
    async with api_client(server.address, token="") as caller:
        with contextlib.ExitStack() as calls:
            for _ in range(WEBHOOK_CALLS_AT_ONCE_MAX):
                calls.enter_context(_open_unfinished_call(server, "webhook", headers))

            async def is_full() -> bool:
                return await _error_code_of_call(caller, server) == "too_many_calls" and caller.status == 503

            await wait_until(is_full)

        async def is_heard() -> bool:
            await _error_code_of_call(caller, server)
            return caller.status == 202

        await wait_until(is_heard)


def _open_unfinished_call(server: RunningServer, path: str, headers: str) -> socket.socket:
    """A call of which the body does not come."""
    call = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    head = f"POST /api/channels/{path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{headers}"
    call.sendall(f"{head}content-type: application/json\r\ncontent-length: 900000\r\n\r\n".encode())
    return call


async def _error_code_of_call(caller: ApiClient, server: RunningServer) -> str:
    """What is wrong with a call that is signed, by its code."""
    body = json.dumps({"chat": "y", "sender": "y", "text": "t"}).encode()
    headers = headers_for(key_in((server.folder / "channel-webhook.key").read_text()), body)
    problem = await caller.post("/api/channels/webhook", data=io.BytesIO(body), headers=headers)
    return str(problem.get("code", ""))
