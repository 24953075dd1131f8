"""Clients of a server, as people's programs are: they follow, look, send, answer, and come back to it.

All that any of them was ever sent is kept in a `Memory`, which notices at once when two of them were told
different things.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import aiohttp
import msgspec

from tests.support.auth_tokens import SIGNED_IN
from tests.support.turn_script import Script

T = TypeVar("T")
AGAIN_S = 0.02
"""Between two tries to reach a server that is away."""
PATIENCE_S = 120.0


class Seen(msgspec.Struct):
    """An event that was sent to a client, and when it first came."""

    kind: str
    body: dict[str, Any]
    raw: bytes
    at: float


class Sent(msgspec.Struct):
    """A message: its key, what it asks for, and the receipts that its sends were given."""

    key: str
    script: Script
    receipts: list[dict[str, Any]] = []
    may_be_cancelled: bool = False


class Memory:
    """What clients know of one session."""

    def __init__(self, session_id: str, addresses: Sequence[str]) -> None:
        self.session_id = session_id
        self._addresses = list(addresses)
        self.events: dict[int, Seen] = {}
        self.looks: dict[str, str] = {}
        """The longest text that any GET showed of a message."""
        self.sent: list[Sent] = []
        self.decisions: dict[str, str] = {}
        self.lies: list[str] = []
        self.watchers: list[Callable[[Memory, Seen], None]] = []
        self.heard_at = 0.0
        """When something new was last sent."""
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def address(self) -> str:
        """Where its people turn to."""
        return self._addresses[0]

    def turn_away(self) -> None:
        """Nobody answers there: try the next."""
        self._addresses.append(self._addresses.pop(0))

    def keep(self, seq: int, kind: str, raw: bytes) -> None:
        before = self.events.get(seq)
        if before is None:
            self.heard_at = time.monotonic()
            seen = Seen(kind, msgspec.json.decode(raw), raw, self.heard_at)
            self.events[seq] = seen
            for watch in self.watchers:
                watch(self, seen)
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        elif (before.kind, before.raw) != (kind, raw):
            self.lies.append(f"{self.session_id}:{seq} was {before.raw!r}, is {raw!r}")

    def look_at(self, page: dict[str, Any]) -> None:
        """What a GET of messages showed."""
        for message in page["messages"]:
            if message["role"] == "assistant":
                text = words_of(message)
                before = self.looks.get(message["id"], "")
                short, long = sorted((before, text), key=len)
                if not long.startswith(short):
                    self.lies.append(f"{message['id']} read {before!r}, then {text!r}")
                self.looks[message["id"]] = long

    def of_kind(self, *kinds: str) -> list[Seen]:
        return [self.events[seq] for seq in sorted(self.events) if self.events[seq].kind in kinds]

    def has(self, kind: str, times: int = 1) -> Callable[[], bool]:
        return lambda: len(self.of_kind(kind)) >= times

    async def until(self, is_so: Callable[[], bool], what: str = "it") -> None:
        """Wait until what was seen makes `is_so` true."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not is_so():
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.append(future)
                    await future
        except TimeoutError:
            kinds = [self.events[seq].kind for seq in sorted(self.events)[-50:]]
            raise AssertionError(f"{what} did not come about in {self.session_id}: … {kinds}") from None

    async def until_all_ended(self) -> None:
        await self.until(lambda: all(self.outcome(sent) for sent in self.sent), "the end of every run")

    def run_of(self, sent: Sent) -> str | None:
        for seen in self.of_kind("turn_accepted"):
            if seen.body.get("key") == sent.key:
                run_id: str = seen.body["run_id"]
                return run_id
        return None

    def outcome(self, sent: Sent) -> str:
        """How a message's run ended; nothing while it has not."""
        run_id = self.run_of(sent)
        for seen in self.of_kind("run_completed", "run_cancelled", "run_failed"):
            if seen.body["run_id"] == run_id:
                return seen.kind
        return ""

    def stalled(self) -> int:
        """The most often that a run of this session was resumed since its last whole step."""
        counts: dict[str, int] = {}
        ends = ("run_completed", "run_cancelled", "run_failed")
        for seen in self.of_kind("run_resumed", "message_settled", "tool_settled", *ends):
            run_id = seen.body.get("run_id", "")
            if seen.kind == "run_resumed":
                counts[run_id] = counts.get(run_id, 0) + 1
            elif seen.kind in ends or seen.body.get("status", "settled") == "settled":
                counts[run_id] = 0
        return max(counts.values(), default=0)


class Crowd:
    """Clients of one server or several; every session has a follower and someone who answers."""

    def __init__(self, http: aiohttp.ClientSession, chance: random.Random, decide: Callable[[], str]) -> None:
        self._http = http
        self._chance = chance
        self._decide_anew = decide
        self._tasks: list[asyncio.Task[None]] = []
        self.memories: list[Memory] = []
        self._speaks = asyncio.Event()
        self._speaks.set()

    def be_silent(self) -> None:
        """Answer no question until told to speak."""
        self._speaks.clear()

    def speak(self) -> None:
        self._speaks.set()

    async def begin(self, *addresses: str) -> Memory:
        """A new session, followed at each address. Not retried: nobody is killed before there is one."""
        async with self._http.post(f"{addresses[0]}/api/sessions", json={}) as answer:
            assert answer.status == 201, await answer.text()
            memory = Memory((await answer.json())["id"], addresses)
        self.memories.append(memory)
        for address in addresses:
            self.follow(memory, address)
        self._tasks.append(asyncio.create_task(self._answer_for_ever(memory)))
        return memory

    def follow(self, memory: Memory, address: str) -> None:
        self._tasks.append(asyncio.create_task(self._follow_for_ever(memory, address)))

    def follow_several(self, memories: Sequence[Memory], address: str) -> None:
        self._tasks.append(asyncio.create_task(self._follow_several_for_ever(memories, address)))

    def look(self, memory: Memory, address: str) -> None:
        self._tasks.append(asyncio.create_task(self._look_for_ever(memory, address)))

    async def say(self, memory: Memory, script: Script) -> Sent:
        """Send a message until it is acknowledged, always with the same key."""
        sent = Sent(f"key of {script.name}", script)
        memory.sent.append(sent)
        body = {"text": script.text, "key": sent.key}
        while not sent.receipts:
            await self.try_to_say(memory, sent, body)
        return sent

    async def try_to_say(self, memory: Memory, sent: Sent, body: dict[str, str]) -> None:
        path = f"/api/sessions/{memory.session_id}/turns"
        status, receipt = await self.ask("POST", memory.address + path, body)
        if status == 202:
            sent.receipts.append(receipt)
        else:
            assert status in (0, 503), receipt
            memory.turn_away()
            await asyncio.sleep(AGAIN_S)

    async def cancel(self, memory: Memory, sent: Sent) -> None:
        """Stop a message's run, unless it has ended by itself."""
        sent.may_be_cancelled = True
        status, run_id = 0, sent.receipts[0]["run_id"]
        while status not in (200, 409):
            status, answer = await self.ask("POST", f"{memory.address}/api/runs/{run_id}/cancel", {})
            assert status in (0, 200, 409, 503), answer
            if status in (0, 503):
                memory.turn_away()
                await asyncio.sleep(AGAIN_S)

    async def ask(self, method: str, url: str, body: object = None) -> tuple[int, Any]:
        """Status and answer; status 0 when nobody answered."""
        try:
            async with self._http.request(method, url, json=body) as answer:
                return answer.status, msgspec.json.decode(await answer.read())
        except (aiohttp.ClientError, OSError, msgspec.DecodeError):
            return 0, None

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        wrong = [each for each in ended if isinstance(each, Exception)]
        if wrong:
            raise wrong[0]

    def check(self) -> None:
        """Raise what a client's task was ended by, if one was."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _follow_for_ever(self, memory: Memory, address: str) -> None:
        url, last = f"{address}/api/sessions/{memory.session_id}/events", 0
        while True:
            with suppress(aiohttp.ClientError, OSError):
                async with self._http.get(url, headers={"Last-Event-ID": str(last)}) as answer:
                    # A cursor that it gave out itself is never refused.
                    assert answer.status in (200, 503), await answer.text()
                    async for seq, kind, raw in frames(answer):
                        assert seq > last, f"{seq} came after {last}"
                        last = seq
                        memory.keep(seq, kind, raw)
            await asyncio.sleep(AGAIN_S)

    async def _follow_several_for_ever(self, memories: Sequence[Memory], address: str) -> None:
        last = {memory.session_id: 0 for memory in memories}
        by_name = {memory.session_id: memory for memory in memories}
        while True:
            cursors = "&".join(f"session={name}:{seq}" for name, seq in last.items())
            with suppress(aiohttp.ClientError, OSError):
                async with self._http.get(f"{address}/api/stream?{cursors}") as answer:
                    assert answer.status in (200, 503), await answer.text()
                    async for (name, seq), kind, raw in _frames(answer, _place_in_several):
                        assert seq > last[name], f"{seq} came after {last[name]}"
                        last[name] = seq
                        # The same event as in a stream of its own, but for the session's name in front.
                        by_name[name].keep(
                            seq, kind, b"{" + raw.removeprefix(b'{"session_id":"%s",' % name.encode())
                        )
            await asyncio.sleep(AGAIN_S)

    async def _look_for_ever(self, memory: Memory, address: str) -> None:
        url = f"{address}/api/sessions/{memory.session_id}/messages?limit=20"
        while True:
            status, page = await self.ask("GET", url)
            if status == 200:
                memory.look_at(page)
            await asyncio.sleep(0.05 + self._chance.random() * 0.2)

    async def _answer_for_ever(self, memory: Memory) -> None:
        """Answer what is asked about calls that may have run; nothing else needs anybody."""
        while True:
            await self._until_asked(memory)
            await self._speaks.wait()
            for call_id, run_id in open_questions(memory).items():
                decision = self._decide(memory, call_id)
                url = f"{memory.address}/api/runs/{run_id}/tools/{call_id}"
                body = {"decision": decision} | ({"result": "It ran."} if decision == "mark_done" else {})
                if (await self.ask("POST", url, body))[0] in (0, 503):
                    memory.turn_away()
            await asyncio.sleep(AGAIN_S)

    async def _until_asked(self, memory: Memory) -> None:
        while not open_questions(memory):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            memory._waiting.append(future)
            await future

    def _decide(self, memory: Memory, call_id: str) -> str:
        # Whatever became of the first try, the answer stays the same.
        if call_id not in memory.decisions:
            memory.decisions[call_id] = self._decide_anew()
        return memory.decisions[call_id]


def open_questions(memory: Memory) -> dict[str, str]:
    """The calls that may have run and that nobody has spoken on yet, each with its run."""
    found: dict[str, str] = {}
    for seen in memory.of_kind("tool_in_doubt", "tool_resolved", "tool_settled"):
        call_id = seen.body["call_id"]
        if seen.kind == "tool_in_doubt":
            found[call_id] = seen.body["run_id"]
        else:
            found.pop(call_id, None)
    return found


def frames(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[int, str, bytes]]:
    """(seq, kind, body) of each whole frame of a session's stream; one that was cut off was not sent."""
    return _frames(answer, int)


async def _frames(
    answer: aiohttp.ClientResponse, place_of: Callable[[bytes], T]
) -> AsyncIterator[tuple[T, str, bytes]]:
    frame: dict[bytes, bytes] = {}
    async for line in answer.content:
        name, _, value = line.rstrip(b"\n").partition(b": ")
        if name:
            frame[name] = value
            continue
        if b"id" in frame:
            yield place_of(frame[b"id"]), frame[b"event"].decode(), frame[b"data"]
        frame = {}


def _place_in_several(text: bytes) -> tuple[str, int]:
    name, _, seq = text.decode().partition(":")
    return name, int(seq)


def words_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


@asynccontextmanager
async def gathering(chance: random.Random, decide: Callable[[], str] | None = None) -> AsyncIterator[Crowd]:
    """Clients who answer a call in doubt as `decide` says, else as chance has it."""
    by_chance = lambda: chance.choice(("skip", "mark_done", "mark_done", "rerun"))  # noqa: E731
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=SIGNED_IN) as http:
        crowd = Crowd(http, chance, decide or by_chance)
        try:
            yield crowd
        finally:
            await crowd.close()
