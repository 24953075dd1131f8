"""People who use one store through one or several servers, while something happens to the servers."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from tests.crash.audit import CrashFigures, audit
from tests.crash.killer import ResumeTimer
from tests.crash.scripted_model import gated_model_server
from tests.crash.writer_history import temporary_store_folder
from tests.support.recording_clients import RecordingClients, SentMessage, SessionRecorder, recording_clients
from tests.support.server_process import ServerProcess, run_doctor, server_process
from tests.support.turn_script import random_script

PEOPLE = 5


class LoadHarness:
    """Each person writes a few messages, waits for the answers, and writes again until the deadline."""

    def __init__(self, clients: RecordingClients, rng: random.Random, servers: list[ServerProcess]) -> None:
        self._clients = clients
        self._is_stopping = False
        self.rng = rng
        self.servers = servers
        self.figures = CrashFigures()
        self.resume_timer = ResumeTimer(clients.recorders)

    @property
    def recorders(self) -> list[SessionRecorder]:
        return self._clients.recorders

    def check(self) -> None:
        self._clients.check()

    async def run_during(self, happening: Callable[["LoadHarness"], Awaitable[None]]) -> None:
        """Write until `happening` ends, then wait until everything is answered."""
        async with asyncio.TaskGroup() as group:
            for recorder, name in zip(self.recorders, "abcde", strict=True):
                group.create_task(self._write(recorder, name))
            await happening(self)
            self._is_stopping = True
        self.figures.resumed_s = self.resume_timer.resumed_s

    async def _write(self, recorder: SessionRecorder, name: str) -> None:
        number = 0
        while not self._is_stopping or not number:
            for _ in range(self.rng.choice((1, 1, 2, 3))):
                sent = await self._clients.send(recorder, random_script(self.rng, f"{name}{number}"))
                number += 1
            if self.rng.random() < 0.1:
                await self._stop(recorder, sent)
            await recorder.wait_for_all_runs()

    async def _stop(self, recorder: SessionRecorder, sent: SentMessage) -> None:
        """Cancel the last message somewhere: a message behind a cancelled one would be cancelled with it."""
        events = len(recorder.events) + self.rng.randint(0, 40)
        await recorder.wait_until(lambda: len(recorder.events) >= events or bool(recorder.outcome(sent)))
        await self._clients.cancel(recorder, sent)


async def run_load(
    seed: int, servers: int, happening: Callable[[LoadHarness], Awaitable[None]]
) -> CrashFigures:
    """Run `happening` on several servers of one store during load, and return the figures."""
    async with load_harness(random.Random(seed), servers) as harness:
        await harness.run_during(happening)
        figures = await audit(harness._clients, harness.figures, *harness.servers)
        report = await run_doctor(harness.servers[0].folder)
        assert report["ok"], f"seed {seed}: {report}"
        return figures


@asynccontextmanager
async def load_harness(rng: random.Random, count: int) -> AsyncIterator[LoadHarness]:
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_store_folder())
        model_server = await stack.enter_async_context(gated_model_server())
        servers = [
            await stack.enter_async_context(server_process(folder / "store", model_server.url))
            for _ in range(count)
        ]
        clients = await stack.enter_async_context(recording_clients(rng))
        for number in range(PEOPLE):
            first = number % count
            addresses = [each.address for each in (*servers[first:], *servers[:first])]
            recorder = await clients.create_session(*addresses)
            if number % 2:
                clients.poll(recorder, addresses[-1])
        clients.follow_several(clients.recorders, servers[-1].address)
        yield LoadHarness(clients, rng, servers)
