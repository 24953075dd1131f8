"""A server that remembers and people who talk to it, for deaths at a chosen point of telling memory.

What memory is owed is known here from what clients were sent: the turns that were completed and stand.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import msgspec

from holdfast.store.sqlite.store import SqliteStore
from tests.crash.writer_history import scratch
from tests.support.api_client import speaking
from tests.support.auth_tokens import SIGNED_IN
from tests.support.memory_model_server import Rememberer
from tests.support.recording_clients import AGAIN_S, PATIENCE_S, Memory, Seen, frames
from tests.support.server_process import Server, serving
from tests.witness_memory.watching import Witness, faults

ENDS = ("run_completed", "run_cancelled", "run_failed")
IDLE_S = "86400"
"""Nobody is quiet for so long: what is told is told for another reason."""


class Household:
    """One server, its model and its memory; each conversation is followed by a client that comes back."""

    def __init__(
        self, server: Server, model: Rememberer, witness: Witness, http: aiohttp.ClientSession
    ) -> None:
        self.server = server
        self.model = model
        self.witness = witness
        self.talks: list[Memory] = []
        self._http = http
        self._tasks: set[asyncio.Task[Any]] = set()

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and answer; status 0 when nobody answered."""
        try:
            async with self._http.request(method, self.server.address + path, json=body) as answer:
                return answer.status, msgspec.json.decode(await answer.read() or b"null")
        except (aiohttp.ClientError, OSError, msgspec.DecodeError):
            return 0, None

    async def insist(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Ask until someone answers. What is asked for may so be done more than once."""
        async with asyncio.timeout(PATIENCE_S):
            for _ in itertools.repeat(None):
                status, answer = await self.ask(method, path, body)
                if status not in (0, 503):
                    return status, answer
                await asyncio.sleep(AGAIN_S)
        raise AssertionError("unreachable")

    async def begin(self, **body: object) -> Memory:
        status, row = await self.insist("POST", "/api/sessions", body)
        assert status == 201, row
        talk = Memory(row["id"], (self.server.address,))
        self.talks.append(talk)
        self.beside(self._follow(talk))
        return talk

    async def say(self, talk: Memory, text: str) -> int:
        """Send a message and wait for its run to end; the number of its turn."""
        key = f"{time.monotonic_ns()} {text}"
        path = f"/api/sessions/{talk.session_id}/turns"
        status, answer = await self.insist("POST", path, {"text": text, "key": key})
        assert status == 202, answer
        run_id: str = answer["run_id"]
        await talk.until(lambda: _has_ended(talk, run_id), f"an answer to {text!r}")
        (turn,) = [seen.body["turn"] for seen in talk.of_kind("turn_accepted") if seen.body["key"] == key]
        return int(turn)

    async def undo(self, talk: Memory, turn: int) -> None:
        """Undo from `turn` on; asked again, it has been done and is refused."""
        (turn_id,) = [
            seen.body["turn_id"] for seen in talk.of_kind("turn_accepted") if seen.body["turn"] == turn
        ]
        path = f"/api/sessions/{talk.session_id}/undo"
        status, answer = await self.insist("POST", path, {"turn_id": turn_id})
        assert status in (200, 404, 409), answer
        await talk.until(
            lambda: turn in {seen.body["from_turn"] for seen in talk.of_kind("turns_undone")}, "an undo"
        )

    def ask_to_remember(self, talk: Memory | None = None) -> "asyncio.Task[tuple[int, Any]]":
        """Beside all else: whoever asks may be cut off."""
        body = {"session_id": talk.session_id} if talk is not None else {}
        return self.beside(self.ask("POST", "/api/memory/commit", body))

    async def waiting(self) -> list[dict[str, Any]]:
        status, answer = await self.insist("GET", "/api/memory/waiting")
        assert status == 200, answer
        rows: list[dict[str, Any]] = answer["waiting"]
        return rows

    async def until_waiting(self, is_so: Callable[[list[dict[str, Any]]], bool], what: str) -> None:
        rows: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                for _ in itertools.repeat(None):
                    rows = await self.waiting()
                    if is_so(rows):
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what} did not come about: {rows}\n{self.server.errors[-2000:]}") from None

    async def in_doubt(self, talk: Memory) -> int:
        """Until people are shown that something of `talk` may have been told; its number."""
        found: list[int] = []

        def is_so(rows: list[dict[str, Any]]) -> bool:
            mine = [row for row in rows if row["session_id"] == talk.session_id]
            found[:] = [row["segment"] for row in mine if row["state"] == "in_doubt"]
            return bool(found)

        await self.until_waiting(is_so, "a doubt")
        return found[0]

    async def remembered(self, talk: Memory, *turns: int) -> None:
        """Until memory holds exactly these turns of `talk`, each once, and nothing waits any more."""
        wanted = Counter(turns)
        await self.witness.until(lambda: self.witness.turns(talk.session_id) == wanted, f"turns {turns}")
        await self.until_waiting(lambda rows: not rows, "an end of waiting")
        assert self.witness.turns(talk.session_id) == wanted
        await self._caught_up(talk)
        assert self.mistold() == []

    async def _caught_up(self, talk: Memory) -> None:
        """Until whoever follows `talk` was sent all that there is: after a start they come back in time."""
        status, page = await self.insist("GET", f"/api/sessions/{talk.session_id}/messages?limit=1")
        assert status in (200, 404), page
        if status == 200:
            await talk.until(
                lambda: max(talk.events, default=0) >= page["head"], "a follower that is up to date"
            )

    def mistold(self) -> list[str]:
        """Whether memory was told anything else than what was said, or a key meant two things."""
        wrong = faults(self.witness.calls())
        texts = {call.session_id: set[str]() for call in self.witness.held()}
        for call in self.witness.held():
            texts[call.session_id].update(call.texts)
        for talk in self.talks:
            said = owed(talk).values()
            wrong += [f"nobody was told {text!r}" for text in said if text not in texts[talk.session_id]]
        return wrong

    def strike_at(self, talk: Memory, kind: str) -> None:
        """Kill the server the moment that a client is sent an event of that kind."""

        def watch(memory: Memory, seen: Seen) -> None:
            if seen.kind == kind:
                talk.watchers.remove(watch)
                self.server.strike()

        talk.watchers.append(watch)

    async def kill_and_start(self) -> None:
        await self.server.kill()
        await self.server.start()

    async def buried_and_started(self) -> None:
        """The server was struck, or is about to be."""
        await self.server.bury()
        await self.server.start()

    def beside(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        wrong = [each for each in ended if isinstance(each, Exception)]
        if wrong:
            raise wrong[0]

    async def _follow(self, talk: Memory) -> None:
        url, last = f"{self.server.address}/api/sessions/{talk.session_id}/events", 0
        while not talk.of_kind("session_deleted"):
            with suppress(aiohttp.ClientError, OSError):
                async with self._http.get(url, headers={"Last-Event-ID": str(last)}) as answer:
                    if answer.status == 404:
                        return
                    assert answer.status in (200, 503), await answer.text()
                    async for seq, kind, raw in frames(answer):
                        last = seq
                        talk.keep(seq, kind, raw)
            await asyncio.sleep(AGAIN_S)


def _has_ended(talk: Memory, run_id: str) -> bool:
    return any(seen.body["run_id"] == run_id for seen in talk.of_kind(*ENDS))


def owed(talk: Memory) -> dict[int, str]:
    """The turns of which memory is to be told, each with what was asked: completed, and not undone since."""
    asked: dict[str, tuple[int, str]] = {}
    found: dict[int, str] = {}
    for seen in talk.of_kind("turn_accepted", "run_completed", "turns_undone"):
        if seen.kind == "turn_accepted":
            asked[seen.body["run_id"]] = seen.body["turn"], seen.body["parts"][0]["text"]
        elif seen.kind == "turns_undone":
            found = {turn: text for turn, text in found.items() if turn < seen.body["from_turn"]}
        elif seen.body.get("owed"):
            turn, text = asked[seen.body["run_id"]]
            found[turn] = text
    return found


@asynccontextmanager
async def household(
    takes_key: bool = True, memory: str = "witness", **settings: str
) -> AsyncIterator[Household]:
    """A home whose store must be sound when it is left."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(scratch())
        model = stack.enter_context(speaking(Rememberer()))
        assert isinstance(model, Rememberer)
        witness = Witness(folder / "witness", takes_key)
        settings = {"memory": memory, "memory_idle_s": IDLE_S} | settings
        server = await stack.enter_async_context(
            serving(folder / "store", model.url, witness.environ, **settings)
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=timeout, headers=SIGNED_IN)
        )
        home = Household(server, model, witness, http)
        stack.push_async_callback(home.close)
        yield home
        await _leave_well(home)


async def _leave_well(home: Household) -> None:
    home.witness.lift_all()
    await home.server.end()
    store = await SqliteStore.open(home.server.folder)
    try:
        found = await store.check(False, lambda done, total: None)
    finally:
        await store.close()
    assert not found, f"doctor found {found}"
