"""A server with memory and clients that talk to it, for crashes at a chosen point of a commit.

The expected commits are computed from what clients received: turns that were completed and not undone.
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
from tests.crash.writer_history import temporary_store_folder
from tests.support.api_client import scripted_model_server
from tests.support.auth_tokens import AUTH_HEADERS
from tests.support.memory_model_server import MemoryModelServer
from tests.support.recording_clients import RETRY_S, TIMEOUT_S, ReceivedEvent, SessionRecorder, frames
from tests.support.server_process import ServerProcess, server_process
from tests.witness_memory.watching import WitnessMonitor, call_errors

ENDS = ("run_completed", "run_cancelled", "run_failed")
IDLE_S = "86400"
"""Longer than any test, so that a commit in the test has another reason than idleness."""


class MemoryServerHarness:
    """A server, its model and its memory; a reconnecting client follows each conversation."""

    def __init__(
        self,
        server: ServerProcess,
        model: MemoryModelServer,
        witness: WitnessMonitor,
        http: aiohttp.ClientSession,
    ) -> None:
        self.server = server
        self.model = model
        self.witness = witness
        self.sessions: list[SessionRecorder] = []
        self._http = http
        self._tasks: set[asyncio.Task[Any]] = set()

    async def request(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return status and answer; status 0 without an answer."""
        try:
            async with self._http.request(method, self.server.address + path, json=body) as answer:
                return answer.status, msgspec.json.decode(await answer.read() or b"null")
        except (aiohttp.ClientError, OSError, msgspec.DecodeError):
            return 0, None

    async def request_until_answered(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Repeat a request until it is answered. The server may therefore execute it more than once."""
        async with asyncio.timeout(TIMEOUT_S):
            for _ in itertools.repeat(None):
                status, answer = await self.request(method, path, body)
                if status not in (0, 503):
                    return status, answer
                await asyncio.sleep(RETRY_S)
        raise AssertionError("unreachable")

    async def create_session(self, **body: object) -> SessionRecorder:
        status, row = await self.request_until_answered("POST", "/api/sessions", body)
        assert status == 201, row
        session = SessionRecorder(row["id"], (self.server.address,))
        self.sessions.append(session)
        self.run_in_background(self._follow(session))
        return session

    async def send(self, session: SessionRecorder, text: str) -> int:
        """Send a message, wait for its run to end, and return the number of its turn."""
        key = f"{time.monotonic_ns()} {text}"
        path = f"/api/sessions/{session.session_id}/turns"
        status, answer = await self.request_until_answered("POST", path, {"text": text, "key": key})
        assert status == 202, answer
        run_id: str = answer["run_id"]
        await session.wait_until(lambda: _has_ended(session, run_id), f"an answer to {text!r}")
        (turn,) = [seen.body["turn"] for seen in session.of_kind("turn_accepted") if seen.body["key"] == key]
        return int(turn)

    async def undo(self, session: SessionRecorder, turn: int) -> None:
        """Undo from `turn` on; a repeated request is refused."""
        (turn_id,) = [
            seen.body["turn_id"] for seen in session.of_kind("turn_accepted") if seen.body["turn"] == turn
        ]
        path = f"/api/sessions/{session.session_id}/undo"
        status, answer = await self.request_until_answered("POST", path, {"turn_id": turn_id})
        assert status in (200, 404, 409), answer
        await session.wait_until(
            lambda: turn in {seen.body["from_turn"] for seen in session.of_kind("turns_undone")}, "an undo"
        )

    def request_commit(self, session: SessionRecorder | None = None) -> "asyncio.Task[tuple[int, Any]]":
        """Request a commit in the background: a kill may cut the request off."""
        body = {"session_id": session.session_id} if session is not None else {}
        return self.run_in_background(self.request("POST", "/api/memory/commit", body))

    async def pending_commits(self) -> list[dict[str, Any]]:
        status, answer = await self.request_until_answered("GET", "/api/memory/waiting")
        assert status == 200, answer
        rows: list[dict[str, Any]] = answer["waiting"]
        return rows

    async def wait_for_pending(
        self, condition: Callable[[list[dict[str, Any]]], bool], description: str
    ) -> None:
        rows: list[dict[str, Any]] = []
        try:
            async with asyncio.timeout(TIMEOUT_S):
                for _ in itertools.repeat(None):
                    rows = await self.pending_commits()
                    if condition(rows):
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"{description} did not come about: {rows}\n{self.server.errors[-2000:]}"
            ) from None

    async def wait_for_in_doubt(self, session: SessionRecorder) -> int:
        """Wait until an entry of `talk` is shown as in doubt, and return its number."""
        segments: list[int] = []

        def has_in_doubt(rows: list[dict[str, Any]]) -> bool:
            mine = [row for row in rows if row["session_id"] == session.session_id]
            segments[:] = [row["segment"] for row in mine if row["state"] == "in_doubt"]
            return bool(segments)

        await self.wait_for_pending(has_in_doubt, "a doubt")
        return segments[0]

    async def wait_until_remembered(self, session: SessionRecorder, *turns: int) -> None:
        """Wait until memory holds exactly these turns of `talk`, each once, and nothing is pending."""
        wanted = Counter(turns)
        await self.witness.wait_until(
            lambda: self.witness.turns(session.session_id) == wanted, f"turns {turns}"
        )
        await self.wait_for_pending(lambda rows: not rows, "an end of waiting")
        assert self.witness.turns(session.session_id) == wanted
        await self._wait_until_caught_up(session)
        assert self.wrong_commits() == []

    async def _wait_until_caught_up(self, session: SessionRecorder) -> None:
        """Wait until the client of `talk` has received every event: after a start it reconnects in time."""
        status, page = await self.request_until_answered(
            "GET", f"/api/sessions/{session.session_id}/messages?limit=1"
        )
        assert status in (200, 404), page
        if status == 200:
            await session.wait_until(
                lambda: max(session.events, default=0) >= page["head"], "a follower that is up to date"
            )

    def wrong_commits(self) -> list[str]:
        """Return commits that differ from the conversation, and keys with two meanings."""
        wrong = call_errors(self.witness.calls())
        texts = {call.session_id: set[str]() for call in self.witness.stored_commits()}
        for call in self.witness.stored_commits():
            texts[call.session_id].update(call.texts)
        for session in self.sessions:
            texts_due = turns_to_commit(session).values()
            wrong += [
                f"nobody was told {text!r}" for text in texts_due if text not in texts[session.session_id]
            ]
        return wrong

    def kill_at_event(self, session: SessionRecorder, kind: str) -> None:
        """Kill the server as soon as a client receives an event of that kind."""

        def kill_on_event(recorder: SessionRecorder, seen: ReceivedEvent) -> None:
            if seen.kind == kind:
                session.watchers.remove(kill_on_event)
                self.server.send_kill()

        session.watchers.append(kill_on_event)

    async def kill_and_start(self) -> None:
        await self.server.kill()
        await self.server.start()

    async def wait_killed_and_start(self) -> None:
        """Wait until the server is killed, then start it."""
        await self.server.wait_killed()
        await self.server.start()

    def run_in_background(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
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

    async def _follow(self, session: SessionRecorder) -> None:
        url, last = f"{self.server.address}/api/sessions/{session.session_id}/events", 0
        while not session.of_kind("session_deleted"):
            with suppress(aiohttp.ClientError, OSError):
                async with self._http.get(url, headers={"Last-Event-ID": str(last)}) as answer:
                    if answer.status == 404:
                        return
                    assert answer.status in (200, 503), await answer.text()
                    async for seq, kind, raw in frames(answer):
                        last = seq
                        session.record_event(seq, kind, raw)
            await asyncio.sleep(RETRY_S)


def _has_ended(session: SessionRecorder, run_id: str) -> bool:
    return any(seen.body["run_id"] == run_id for seen in session.of_kind(*ENDS))


def turns_to_commit(session: SessionRecorder) -> dict[int, str]:
    """Return the turns to commit, each with its message: completed, and not undone since."""
    prompts: dict[str, tuple[int, str]] = {}
    turns: dict[int, str] = {}
    for seen in session.of_kind("turn_accepted", "run_completed", "turns_undone"):
        if seen.kind == "turn_accepted":
            prompts[seen.body["run_id"]] = seen.body["turn"], seen.body["parts"][0]["text"]
        elif seen.kind == "turns_undone":
            turns = {turn: text for turn, text in turns.items() if turn < seen.body["from_turn"]}
        elif seen.body.get("owed"):
            turn, text = prompts[seen.body["run_id"]]
            turns[turn] = text
    return turns


@asynccontextmanager
async def memory_server_harness(
    takes_key: bool = True, memory: str = "witness", **settings: str
) -> AsyncIterator[MemoryServerHarness]:
    """Run a server with memory, and check its store at the end."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_store_folder())
        model = stack.enter_context(scripted_model_server(MemoryModelServer()))
        assert isinstance(model, MemoryModelServer)
        witness = WitnessMonitor(folder / "witness", takes_key)
        settings = {"memory": memory, "memory_idle_s": IDLE_S} | settings
        server = await stack.enter_async_context(
            server_process(folder / "store", model.url, witness.environ, **settings)
        )
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(
            aiohttp.ClientSession(connector=connector, timeout=timeout, headers=AUTH_HEADERS)
        )
        home = MemoryServerHarness(server, model, witness, http)
        stack.push_async_callback(home.close)
        yield home
        await _assert_store_sound(home)


async def _assert_store_sound(harness: MemoryServerHarness) -> None:
    harness.witness.clear_orders()
    await harness.server.shut_down()
    store = await SqliteStore.open(harness.server.folder)
    try:
        found = await store.check(False, lambda done, total: None)
    finally:
        await store.close()
    assert not found, f"doctor found {found}"
