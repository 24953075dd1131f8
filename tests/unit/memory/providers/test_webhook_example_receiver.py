"""The docs' example receiver as a real process: what it refuses, and what it keeps when it is killed."""

import asyncio
import base64
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from holdfast.domain.clock import FakeClock, SystemClock
from holdfast.memory.conformance import segment
from holdfast.memory.ports import ProviderFailure
from holdfast.memory.providers.webhook import WebhookProvider
from tests.support.example_receiver_process import EXAMPLE, SECRET, example_receiver
from tests.support.free_ports import own_port


def test_the_example_refuses_what_was_signed_by_somebody_else_or_long_ago(tmp_path: Path) -> None:
    port = own_port()
    url = f"http://127.0.0.1:{port}/"
    other = "whsec_" + base64.b64encode(bytes(32)).decode()

    async def tell(secret: str, late_ms: int) -> str:
        clock = FakeClock(_now_ms() - late_ms)
        it = WebhookProvider(url, secret, clock, lambda: "f")
        try:
            return await it.commit(segment("o_1", "a"))
        except ProviderFailure as failure:
            return str(failure)
        finally:
            await it.close()

    with example_receiver(tmp_path, port):
        assert asyncio.run(tell(SECRET, 0)) == "o_1"
        assert "status 401" in asyncio.run(tell(other, 0))
        assert "status 401" in asyncio.run(tell(SECRET, 600_000))
        assert "status 401" in asyncio.run(tell(SECRET, -600_000))


def test_the_example_receiver_survives_a_kill(tmp_path: Path) -> None:
    port = own_port()

    async def with_one(action: Callable[[WebhookProvider], Awaitable[object]]) -> object:
        it = WebhookProvider(f"http://127.0.0.1:{port}/", SECRET, FakeClock(_now_ms()), lambda: "f")
        try:
            return await action(it)
        finally:
            await it.close()

    async def texts(it: WebhookProvider) -> list[str]:
        return [each.text for each in await it.recall("Which jar, then?", "", 9)]

    with example_receiver(tmp_path, port) as process:
        asyncio.run(with_one(lambda it: it.commit(segment("o_1", "The jar is blue."))))
        asyncio.run(with_one(lambda it: it.commit(segment("o_2", "The JAR is red."))))
        asyncio.run(with_one(lambda it: it.retract("o_2", "o_2")))
        process.kill()
        process.wait(30)
    with example_receiver(tmp_path, port):
        asyncio.run(with_one(lambda it: it.commit(segment("o_1", "The jar is blue."))))
        late = asyncio.run(with_one(lambda it: it.commit(segment("o_2", "The JAR is red."))))
        assert late == "o_2"
        assert asyncio.run(with_one(texts)) == ["The jar is blue."]


def test_the_example_says_what_is_missing_before_the_server_was_started(tmp_path: Path) -> None:
    key = tmp_path / "memory-webhook.key"
    command = [sys.executable, "-I", str(EXAMPLE), str(key), str(tmp_path / "told.db"), "1"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"{key} is not there yet: start Holdfast once")
    assert len(ended.stderr.splitlines()) == 1


def _now_ms() -> int:
    return SystemClock().now_ms()
