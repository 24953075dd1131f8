"""The reaper itself: each server dies once, whatever coincides."""

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from tests.crash.killer import MOMENTS, Reaper
from tests.support.recording_clients import Memory
from tests.support.server_process import Server

T = TypeVar("T")


class FirstChoice(random.Random):
    """Chance that always takes the first, and waits no longer than 10 ms."""

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]
        return seq[0]

    def random(self) -> float:
        return 0.01


class Target(Server):
    """A server without a process, which counts how often it would have been killed."""

    strikes = 0

    def strike(self) -> None:
        self.strikes += 1


async def test_a_server_is_struck_once_when_its_moment_comes_as_the_time_is_up(tmp_path: Path) -> None:
    memory, server = Memory("s", ["http://127.0.0.1"]), Target(tmp_path, "")
    striking = asyncio.create_task(Reaper(FirstChoice(), [memory]).strike(server))
    await asyncio.sleep(0)  # It waits now.
    asyncio.get_running_loop().call_soon(memory.keep, 1, MOMENTS[0], b"{}")
    time.sleep(0.02)  # noqa: ASYNC251 - The loop goes on when both are due.
    assert (await striking, server.strikes) == (MOMENTS[0], 1)
