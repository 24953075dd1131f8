"""The killer itself: each server dies once, whatever coincides."""

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from tests.crash.killer import KILL_EVENTS, RandomKiller
from tests.support.recording_clients import SessionRecorder
from tests.support.server_process import ServerProcess

T = TypeVar("T")


class FirstChoice(random.Random):
    """Random choices that always take the first, and wait at most 10 ms."""

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[0]

    def random(self) -> float:
        return 0.01


class StrikeCountingServer(ServerProcess):
    """A server without a process, which counts its kills."""

    kill_count = 0

    def send_kill(self) -> None:
        self.kill_count += 1


async def test_a_server_is_struck_once_when_its_moment_comes_as_the_time_is_up(tmp_path: Path) -> None:
    memory, server = SessionRecorder("s", ["http://127.0.0.1"]), StrikeCountingServer(tmp_path, "")
    striking = asyncio.create_task(RandomKiller(FirstChoice(), [memory]).kill(server))
    await asyncio.sleep(0)  # It waits now.
    asyncio.get_running_loop().call_soon(memory.record_event, 1, KILL_EVENTS[0], b"{}")
    time.sleep(0.02)  # noqa: ASYNC251 - The loop goes on when both are due.
    assert (await striking, server.kill_count) == (KILL_EVENTS[0], 1)
