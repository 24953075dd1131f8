"""One conversation with one server, for deaths at a chosen point."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.crash.audit import Figures, audit
from tests.crash.scripted_model import Actor, acting
from tests.crash.writer_history import scratch, seed_of_run
from tests.support.recording_clients import Crowd, Memory, Seen, Sent, gathering
from tests.support.server_process import Server, serving
from tests.support.turn_script import EFFECTS, Script, Step


class Stage:
    def __init__(self, actor: Actor, server: Server, crowd: Crowd, memory: Memory) -> None:
        self.actor = actor
        self.server = server
        self.crowd = crowd
        self.memory = memory
        self.figures = Figures()

    @property
    def workspace(self) -> Path:
        return self.server.folder / "workspaces" / self.memory.session_id

    def effects(self) -> list[str]:
        path = self.workspace / EFFECTS
        return path.read_text().split() if path.exists() else []

    def was_too_late(self, kind: str) -> bool:
        """Whether the server had come to an event of that kind before it was killed."""
        kinds = self.kinds()
        return kind in kinds[: kinds.index("run_interrupted")]

    async def say(self, name: str, *steps: Step) -> Sent:
        return await self.crowd.say(self.memory, Script(name, steps))

    async def saw(self, kind: str, times: int = 1) -> None:
        await self.memory.until(self.memory.has(kind, times), kind)

    async def heard(self, text: str) -> None:
        """Until a client was sent `text`, of an answer or of a command."""

        def is_there() -> bool:
            seen = self.memory.of_kind("text_appended", "tool_output_appended")
            return text in "".join(each.body["text"] for each in seen)

        await self.memory.until(is_there, text)

    def strike_at(self, kind: str) -> None:
        """Kill the server the moment that a client is sent an event of that kind."""

        def watch(memory: Memory, seen: Seen) -> None:
            if seen.kind == kind:
                self.memory.watchers.remove(watch)
                self.server.strike()

        self.memory.watchers.append(watch)

    async def kill_and_start(self) -> None:
        await self.server.kill()
        await self.start_again()

    async def buried_and_started(self) -> None:
        """The server was struck, or is about to be."""
        await self.server.bury()
        await self.start_again()

    async def start_again(self) -> None:
        self.figures.kills += 1
        await self.server.start()

    def kinds(self) -> list[str]:
        return [self.memory.events[seq].kind for seq in sorted(self.memory.events)]


@asynccontextmanager
async def stage(decision: str = "", **settings: str) -> AsyncIterator[Stage]:
    """A play that must have ended well when it is left. `decision` answers what may have run."""
    chance = random.Random(seed_of_run())
    with scratch() as folder:
        async with (
            acting() as actor,
            serving(folder / "store", actor.url, **settings) as server,
            gathering(chance, _always(decision) if decision else None) as crowd,
        ):
            play = Stage(actor, server, crowd, await crowd.begin(server.address))
            yield play
            actor.open_all()
            await play.memory.until_all_ended()
            figures = await audit(crowd, play.figures, server)
            assert figures.is_clean, f"{figures}\n" + "\n".join(figures.wrong)


def _always(decision: str) -> Callable[[], str]:
    return lambda: decision
