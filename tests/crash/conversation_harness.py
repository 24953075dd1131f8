"""One conversation with one server, for crashes at a chosen point."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.crash.audit import CrashFigures, audit
from tests.crash.scripted_model import GatedModelServer, gated_model_server
from tests.crash.writer_history import run_seed, temporary_store_folder
from tests.support.recording_clients import (
    ReceivedEvent,
    RecordingClients,
    SentMessage,
    SessionRecorder,
    recording_clients,
)
from tests.support.server_process import ServerProcess, server_process
from tests.support.turn_script import EFFECTS, Script, ScriptStep


class CrashHarness:
    def __init__(
        self,
        model_server: GatedModelServer,
        server: ServerProcess,
        clients: RecordingClients,
        recorder: SessionRecorder,
    ) -> None:
        self.model_server = model_server
        self.server = server
        self.clients = clients
        self.recorder = recorder
        self.figures = CrashFigures()

    @property
    def workspace(self) -> Path:
        return self.server.folder / "workspaces" / self.recorder.session_id

    def effects(self) -> list[str]:
        path = self.workspace / EFFECTS
        return path.read_text().split() if path.exists() else []

    def reached_before_kill(self, kind: str) -> bool:
        """Return whether the server reached an event of that kind before it was killed."""
        kinds = self.kinds()
        return kind in kinds[: kinds.index("run_interrupted")]

    async def send(self, name: str, *steps: ScriptStep) -> SentMessage:
        return await self.clients.send(self.recorder, Script(name, steps))

    async def wait_for_event(self, kind: str, times: int = 1) -> None:
        await self.recorder.wait_until(self.recorder.has_events(kind, times), kind)

    async def wait_for_text(self, text: str) -> None:
        """Wait until a client has received `text`, of an answer or of a command."""

        def has_text() -> bool:
            seen = self.recorder.of_kind("text_appended", "tool_output_appended")
            return text in "".join(each.body["text"] for each in seen)

        await self.recorder.wait_until(has_text, text)

    def kill_at_event(self, kind: str) -> None:
        """Kill the server as soon as a client receives an event of that kind."""

        def kill_on_event(recorder: SessionRecorder, seen: ReceivedEvent) -> None:
            if seen.kind == kind:
                self.recorder.watchers.remove(kill_on_event)
                self.server.send_kill()

        self.recorder.watchers.append(kill_on_event)

    async def kill_and_start(self) -> None:
        await self.server.kill()
        await self.restart()

    async def wait_killed_and_start(self) -> None:
        """Wait until the server is killed, then start it."""
        await self.server.wait_killed()
        await self.restart()

    async def restart(self) -> None:
        self.figures.kills += 1
        await self.server.start()

    def kinds(self) -> list[str]:
        return [self.recorder.events[seq].kind for seq in sorted(self.recorder.events)]


@asynccontextmanager
async def crash_harness(decision: str = "", **settings: str) -> AsyncIterator[CrashHarness]:
    """Run a server, and audit it at the end. `decision` answers questions about calls in doubt."""
    rng = random.Random(run_seed())
    with temporary_store_folder() as folder:
        async with (
            gated_model_server() as model_server,
            server_process(folder / "store", model_server.url, **settings) as server,
            recording_clients(rng, always_decide(decision) if decision else None) as clients,
        ):
            harness = CrashHarness(
                model_server, server, clients, await clients.create_session(server.address)
            )
            yield harness
            model_server.open_all_gates()
            await harness.recorder.wait_for_all_runs()
            figures = await audit(clients, harness.figures, server)
            assert figures.is_clean, f"{figures}\n" + "\n".join(figures.wrong)


def always_decide(decision: str) -> Callable[[], str]:
    return lambda: decision
