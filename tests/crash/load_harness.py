"""People who use one store through one server or several, while something happens to the servers."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from tests.crash.audit import Figures, audit
from tests.crash.killer import Stopwatch
from tests.crash.scripted_model import acting
from tests.crash.writer_history import scratch
from tests.support.recording_clients import Crowd, Memory, Sent, gathering
from tests.support.server_process import Server, doctor, serving
from tests.support.turn_script import written_by

PEOPLE = 5


class Bustle:
    """Everyone writes a few messages, waits for the answers, and writes again until it is late."""

    def __init__(self, crowd: Crowd, chance: random.Random, servers: list[Server]) -> None:
        self._crowd = crowd
        self._is_late = False
        self.chance = chance
        self.servers = servers
        self.figures = Figures()
        self.stopwatch = Stopwatch(crowd.memories)

    @property
    def memories(self) -> list[Memory]:
        return self._crowd.memories

    def check(self) -> None:
        self._crowd.check()

    async def go_on_while(self, happening: Callable[["Bustle"], Awaitable[None]]) -> None:
        """Write until `happening` is over, then until everything is answered."""
        async with asyncio.TaskGroup() as group:
            for memory, name in zip(self.memories, "abcde", strict=True):
                group.create_task(self._write(memory, name))
            await happening(self)
            self._is_late = True
        self.figures.resumed_s = self.stopwatch.resumed_s

    async def _write(self, memory: Memory, name: str) -> None:
        number = 0
        while not self._is_late or not number:
            for _ in range(self.chance.choice((1, 1, 2, 3))):
                sent = await self._crowd.say(memory, written_by(self.chance, f"{name}{number}"))
                number += 1
            if self.chance.random() < 0.1:
                await self._stop(memory, sent)
            await memory.until_all_ended()

    async def _stop(self, memory: Memory, sent: Sent) -> None:
        """Stop the last of the messages somewhere; what waits behind one that was stopped would wait."""
        events = len(memory.events) + self.chance.randint(0, 40)
        await memory.until(lambda: len(memory.events) >= events or bool(memory.outcome(sent)))
        await self._crowd.cancel(memory, sent)


async def bustle(seed: int, servers: int, happening: Callable[[Bustle], Awaitable[None]]) -> Figures:
    """What is left after `happening` befell so many servers of one store in the middle of things."""
    async with _town(random.Random(seed), servers) as town:
        await town.go_on_while(happening)
        figures = await audit(town._crowd, town.figures, *town.servers)
        report = await doctor(town.servers[0].folder)
        assert report["ok"], f"seed {seed}: {report}"
        return figures


@asynccontextmanager
async def _town(chance: random.Random, count: int) -> AsyncIterator[Bustle]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(scratch())
        actor = await stack.enter_async_context(acting())
        servers = [
            await stack.enter_async_context(serving(folder / "store", actor.url)) for _ in range(count)
        ]
        crowd = await stack.enter_async_context(gathering(chance))
        for number in range(PEOPLE):
            first = number % count
            addresses = [each.address for each in (*servers[first:], *servers[:first])]
            memory = await crowd.begin(*addresses)
            if number % 2:
                crowd.look(memory, addresses[-1])
        crowd.follow_several(crowd.memories, servers[-1].address)
        yield Bustle(crowd, chance, servers)
