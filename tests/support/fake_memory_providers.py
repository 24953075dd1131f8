"""Memory providers that do as the test says, and a house whose conversations are told to them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import COMMIT_S_MAX, EVICT_S_MAX
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.domain.state.rows import DebtRow
from holdfast.engine.memory_queue import StoreLedger
from holdfast.memory.committer import InDoubt
from holdfast.memory.ports import Health, Owner, OwnerGone, Provider, ProviderCannot, Segment
from holdfast.memory.provider_resolver import Owners
from holdfast.memory.scheduler import Lifecycle
from tests.support.in_process_app import House, Lever, house, says


class Keeper:
    """Keeps what it is told, key by key. The test may hold it up, have it fail, or have it answer rubbish."""

    def __init__(self, name: str = "keeper", takes_key: bool = True) -> None:
        self.name = name
        self.takes_key = takes_key
        self.calls: list[Segment] = []
        self.kept: dict[str, Segment] = {}
        self.retracted: list[tuple[str, str]] = []
        self.answers: list[object] = []
        self.retractions: list[Exception] = []
        self.hold: asyncio.Event | None = None
        self.called = asyncio.Event()
        self.at_once = self.at_once_max = 0

    async def commit(self, segment: Segment) -> str:
        self.calls.append(segment)
        self.called.set()
        self.at_once += 1
        self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            if self.hold is not None:
                await self.hold.wait()
            answer = self.answers.pop(0) if self.answers else f"receipt {segment.key}"
            if isinstance(answer, BaseException):
                raise answer
            self.kept[segment.key] = segment
            return answer  # type: ignore[return-value]
        finally:
            self.at_once -= 1

    async def retract(self, key: str, receipt: str) -> None:
        self.retracted.append((key, receipt))
        if self.retractions:
            raise self.retractions.pop(0)
        self.kept.pop(key, None)

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        return ()

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        raise ProviderCannot(verb="remember")

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        return MemoryPage(())

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise ProviderCannot(verb="edit")

    async def forget(self, memory_id: str) -> None:
        raise ProviderCannot(verb="forget")

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        return


class Stubborn(Keeper):
    """Never answers, and does not let itself be stopped until the test says so."""

    async def commit(self, segment: Segment) -> str:
        self.calls.append(segment)
        self.called.set()
        assert self.hold is not None
        while not self.hold.is_set():
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                continue
        return "at last"


class Diary(Keeper):
    """Writes what it is told into a file that outlives the process; where it takes keys, each of them once.

    It says what it is doing on standard output and hangs there, `before` or `after` writing, if it is to.
    """

    def __init__(self, path: Path, takes_key: bool, hangs: str = "") -> None:
        super().__init__("diary", takes_key)
        self._path = path
        self._hangs = hangs

    async def commit(self, segment: Segment) -> str:
        self.calls.append(segment)
        await self._point("before")
        if not (self.takes_key and any(line["key"] == segment.key for line in written(self._path))):
            line = {"key": segment.key, "said": [said.text for said in segment.messages]}
            with self._path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        await self._point("after")
        return "written"

    async def _point(self, name: str) -> None:
        if self._hangs == name:
            print(name, flush=True)
            await asyncio.Event().wait()


def written(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class Attic:
    """Memory as an agent meets it: whoever is `present` tells of what is completed; nobody, if that is None.

    With `is_on` False nothing is owed.
    """

    def __init__(self) -> None:
        self.present: Owner | None = None
        self.is_on = True
        self.lifecycle: Lifecycle | None = None

    async def owner(self, session_id: SessionId) -> str | None:
        assert self.lifecycle is not None
        if not self.is_on:
            return None
        if self.present is None:
            return self.lifecycle.registered(session_id)
        return await self.lifecycle.enrol(session_id, self.present)

    async def recall(self, session_id: SessionId, said: str, given: Collection[str]) -> tuple[str, ...]:
        return ()

    def boundary(self, session_id: SessionId) -> None:
        assert self.lifecycle is not None
        self.lifecycle.boundary(session_id)

    async def evict(self, session_id: SessionId) -> None:
        assert self.lifecycle is not None
        await self.lifecycle.evict(session_id)


class Home:
    """A house that remembers, and what a test asks of it. What is completed is told by the first keeper."""

    def __init__(
        self,
        here: House,
        attic: Attic,
        keepers: Sequence[Keeper],
        clock: Clock,
        in_doubt: InDoubt,
        held: int,
        commit_s: float,
        evict_s: float,
    ) -> None:
        self.here = here
        self.attic = attic
        self.keepers = {keeper.name: keeper for keeper in keepers}
        self.ledger = StoreLedger(here.store)
        self.lifecycle = attic.lifecycle = Lifecycle(
            self.ledger, self._build, clock, here.ids, in_doubt, lambda: 0.5,
            handles_max=held, commit_s=commit_s, evict_s=evict_s,
        )  # fmt: skip
        attic.present = Owner(keepers[0].name)

    async def _build(self, owner: Owner) -> Provider:
        if owner.provider not in self.keepers:
            raise OwnerGone(detail=f"{owner.provider} is not installed")
        return self.keepers[owner.provider]

    async def keep(self, provider: str) -> str:
        """The digest of an owner by that provider, kept so that it can be named."""
        return await Owners(self.ledger).keep(Owner(provider))

    async def turn(self, session_id: SessionId, text: str, answer: str = "Noted.") -> None:
        self.here.model.steps = [says(answer)]
        sent = await self.here.say(session_id, text)
        await self.here.until_run(sent.run_id, "completed")

    async def debts(self, session_id: SessionId, buried: bool = False) -> list[DebtRow]:
        return list(await self.ledger.debts(session_id, buried))

    async def states(self, session_id: SessionId, buried: bool = False) -> list[str]:
        return [row.state for row in await self.debts(session_id, buried)]

    async def until_states(self, session_id: SessionId, *states: str, buried: bool = False) -> None:
        async def is_so() -> bool:
            return await self.states(session_id, buried) == list(states)

        await self.here.until(is_so, f"debts that are {states}")


@asynccontextmanager
async def home(
    folder: Path,
    *keepers: Keeper,
    clock: Clock | None = None,
    in_doubt: InDoubt = "ask",
    held: int = 100,
    levers: Sequence[Lever] = (),
    stop_s: float = 5.0,
    commit_s: float = COMMIT_S_MAX,
    evict_s: float = EVICT_S_MAX,
) -> AsyncIterator[Home]:
    clock, attic = clock or SystemClock(), Attic()
    async with house(
        folder, *levers, clock=clock, memory=attic, boundary=attic.boundary, evict=attic.evict
    ) as here:
        at_home = Home(here, attic, keepers or (Keeper(),), clock, in_doubt, held, commit_s, evict_s)
        try:
            yield at_home
        finally:
            await at_home.lifecycle.stop(stop_s)
