"""Clients of a server: they follow sessions, read, send, answer questions, and reconnect.

A `SessionRecorder` keeps everything that they receive, and fails at once when two clients receive different
content.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import aiohttp
import msgspec

from tests.support.auth_tokens import AUTH_HEADERS
from tests.support.turn_script import Script

T = TypeVar("T")
RETRY_S = 0.02
"""The pause between two attempts to reach a server."""
TIMEOUT_S = 120.0


class ReceivedEvent(msgspec.Struct):
    """An event that a client received, and when it first came."""

    kind: str
    body: dict[str, Any]
    raw: bytes
    at: float


class SentMessage(msgspec.Struct):
    """A message: its key, its request, and the receipts of its sends."""

    key: str
    script: Script
    receipts: list[dict[str, Any]] = []
    may_be_cancelled: bool = False


class SessionRecorder:
    """Everything that clients received of one session."""

    def __init__(self, session_id: str, addresses: Sequence[str]) -> None:
        self.session_id = session_id
        self._addresses = list(addresses)
        self.events: dict[int, ReceivedEvent] = {}
        self.longest_texts: dict[str, str] = {}
        """The longest text of a message in any GET."""
        self.sent: list[SentMessage] = []
        self.decisions: dict[str, str] = {}
        self.contradictions: list[str] = []
        self.watchers: list[Callable[[SessionRecorder, ReceivedEvent], None]] = []
        self.last_event_at = 0.0
        """When the last new event was received."""
        self._waiters: list[asyncio.Future[None]] = []

    @property
    def address(self) -> str:
        """The address of the server that its clients use."""
        return self._addresses[0]

    def use_next_address(self) -> None:
        """Use the next address, since this one does not answer."""
        self._addresses.append(self._addresses.pop(0))

    def record_event(self, seq: int, kind: str, raw: bytes) -> None:
        before = self.events.get(seq)
        if before is None:
            self.last_event_at = time.monotonic()
            seen = ReceivedEvent(kind, msgspec.json.decode(raw), raw, self.last_event_at)
            self.events[seq] = seen
            for watch in self.watchers:
                watch(self, seen)
            waiting, self._waiters = self._waiters, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)
        elif (before.kind, before.raw) != (kind, raw):
            self.contradictions.append(f"{self.session_id}:{seq} was {before.raw!r}, is {raw!r}")

    def record_page(self, page: dict[str, Any]) -> None:
        """Record a page of messages from a GET."""
        for message in page["messages"]:
            if message["role"] == "assistant":
                text = text_of(message)
                before = self.longest_texts.get(message["id"], "")
                short, long = sorted((before, text), key=len)
                if not long.startswith(short):
                    self.contradictions.append(f"{message['id']} read {before!r}, then {text!r}")
                self.longest_texts[message["id"]] = long

    def of_kind(self, *kinds: str) -> list[ReceivedEvent]:
        return [self.events[seq] for seq in sorted(self.events) if self.events[seq].kind in kinds]

    def has_events(self, kind: str, times: int = 1) -> Callable[[], bool]:
        return lambda: len(self.of_kind(kind)) >= times

    async def wait_until(self, condition: Callable[[], bool], description: str = "it") -> None:
        """Wait until the received events make `is_so` true."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while not condition():
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters.append(future)
                    await future
        except TimeoutError:
            kinds = [self.events[seq].kind for seq in sorted(self.events)[-50:]]
            raise AssertionError(
                f"{description} did not come about in {self.session_id}: … {kinds}"
            ) from None

    async def wait_for_all_runs(self) -> None:
        await self.wait_until(lambda: all(self.outcome(sent) for sent in self.sent), "the end of every run")

    def run_of(self, sent: SentMessage) -> str | None:
        for seen in self.of_kind("turn_accepted"):
            if seen.body.get("key") == sent.key:
                run_id: str = seen.body["run_id"]
                return run_id
        return None

    def outcome(self, sent: SentMessage) -> str:
        """Return how the run of a message ended; None while it has not."""
        run_id = self.run_of(sent)
        for seen in self.of_kind("run_completed", "run_cancelled", "run_failed"):
            if seen.body["run_id"] == run_id:
                return seen.kind
        return ""

    def resumes_without_progress(self) -> int:
        """Return the most resumes of a run in this session since its last whole step."""
        counts: dict[str, int] = {}
        ends = ("run_completed", "run_cancelled", "run_failed")
        for seen in self.of_kind("run_resumed", "message_settled", "tool_settled", *ends):
            run_id = seen.body.get("run_id", "")
            if seen.kind == "run_resumed":
                counts[run_id] = counts.get(run_id, 0) + 1
            elif seen.kind in ends or seen.body.get("status", "settled") == "settled":
                counts[run_id] = 0
        return max(counts.values(), default=0)


class RecordingClients:
    """Clients of one or several servers; every session has a follower and someone who answers questions."""

    def __init__(self, http: aiohttp.ClientSession, rng: random.Random, decide: Callable[[], str]) -> None:
        self._http = http
        self._rng = rng
        self._new_decision = decide
        self._tasks: list[asyncio.Task[None]] = []
        self.recorders: list[SessionRecorder] = []
        self._may_answer = asyncio.Event()
        self._may_answer.set()

    def pause_answers(self) -> None:
        """Answer no question until the end of the block."""
        self._may_answer.clear()

    def resume_answers(self) -> None:
        self._may_answer.set()

    async def create_session(self, *addresses: str) -> SessionRecorder:
        """Create a session and follow it at each address, without retries: nothing is killed before."""
        async with self._http.post(f"{addresses[0]}/api/sessions", json={}) as answer:
            assert answer.status == 201, await answer.text()
            recorder = SessionRecorder((await answer.json())["id"], addresses)
        self.recorders.append(recorder)
        for address in addresses:
            self.follow(recorder, address)
        self._tasks.append(asyncio.create_task(self._answer_loop(recorder)))
        return recorder

    def follow(self, recorder: SessionRecorder, address: str) -> None:
        self._tasks.append(asyncio.create_task(self._follow_loop(recorder, address)))

    def follow_several(self, recorders: Sequence[SessionRecorder], address: str) -> None:
        self._tasks.append(asyncio.create_task(self._follow_several_loop(recorders, address)))

    def poll(self, recorder: SessionRecorder, address: str) -> None:
        self._tasks.append(asyncio.create_task(self._poll_loop(recorder, address)))

    async def send(self, recorder: SessionRecorder, script: Script) -> SentMessage:
        """Send a message until it is acknowledged, always with the same key."""
        sent = SentMessage(f"key of {script.name}", script)
        recorder.sent.append(sent)
        body = {"text": script.text, "key": sent.key}
        while not sent.receipts:
            await self._try_send(recorder, sent, body)
        return sent

    async def _try_send(self, recorder: SessionRecorder, sent: SentMessage, body: dict[str, str]) -> None:
        path = f"/api/sessions/{recorder.session_id}/turns"
        status, receipt = await self.request("POST", recorder.address + path, body)
        if status == 202:
            sent.receipts.append(receipt)
        else:
            assert status in (0, 503), receipt
            recorder.use_next_address()
            await asyncio.sleep(RETRY_S)

    async def cancel(self, recorder: SessionRecorder, sent: SentMessage) -> None:
        """Cancel the run of a message, unless it has ended by itself."""
        sent.may_be_cancelled = True
        status, run_id = 0, sent.receipts[0]["run_id"]
        while status not in (200, 409):
            status, answer = await self.request("POST", f"{recorder.address}/api/runs/{run_id}/cancel", {})
            assert status in (0, 200, 409, 503), answer
            if status in (0, 503):
                recorder.use_next_address()
                await asyncio.sleep(RETRY_S)

    async def request(self, method: str, url: str, body: object = None) -> tuple[int, Any]:
        """Return status and answer; status 0 without an answer."""
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
        """Raise the error of a client task, if it has failed."""
        for task in self._tasks:
            if task.done() and not task.cancelled():
                task.result()

    async def _follow_loop(self, recorder: SessionRecorder, address: str) -> None:
        url, last = f"{address}/api/sessions/{recorder.session_id}/events", 0
        while True:
            with suppress(aiohttp.ClientError, OSError):
                async with self._http.get(url, headers={"Last-Event-ID": str(last)}) as answer:
                    # A cursor that it gave out itself is never refused.
                    assert answer.status in (200, 503), await answer.text()
                    async for seq, kind, raw in frames(answer):
                        assert seq > last, f"{seq} came after {last}"
                        last = seq
                        recorder.record_event(seq, kind, raw)
            await asyncio.sleep(RETRY_S)

    async def _follow_several_loop(self, recorders: Sequence[SessionRecorder], address: str) -> None:
        last = {recorder.session_id: 0 for recorder in recorders}
        by_name = {memory.session_id: memory for memory in recorders}
        while True:
            cursors = "&".join(f"session={name}:{seq}" for name, seq in last.items())
            with suppress(aiohttp.ClientError, OSError):
                async with self._http.get(f"{address}/api/stream?{cursors}") as answer:
                    assert answer.status in (200, 503), await answer.text()
                    async for (name, seq), kind, raw in _frames(answer, _place_in_several):
                        assert seq > last[name], f"{seq} came after {last[name]}"
                        last[name] = seq
                        # The same event as in a stream of its own, but for the session's name in front.
                        by_name[name].record_event(
                            seq, kind, b"{" + raw.removeprefix(b'{"session_id":"%s",' % name.encode())
                        )
            await asyncio.sleep(RETRY_S)

    async def _poll_loop(self, recorder: SessionRecorder, address: str) -> None:
        url = f"{address}/api/sessions/{recorder.session_id}/messages?limit=20"
        while True:
            status, page = await self.request("GET", url)
            if status == 200:
                recorder.record_page(page)
            await asyncio.sleep(0.05 + self._rng.random() * 0.2)

    async def _answer_loop(self, recorder: SessionRecorder) -> None:
        """Answer questions about calls in doubt; nothing else needs an answer."""
        while True:
            await self._wait_for_question(recorder)
            await self._may_answer.wait()
            for call_id, run_id in open_questions(recorder).items():
                decision = self._decide(recorder, call_id)
                url = f"{recorder.address}/api/runs/{run_id}/tools/{call_id}"
                body = {"decision": decision} | ({"result": "It ran."} if decision == "mark_done" else {})
                if (await self.request("POST", url, body))[0] in (0, 503):
                    recorder.use_next_address()
            await asyncio.sleep(RETRY_S)

    async def _wait_for_question(self, recorder: SessionRecorder) -> None:
        while not open_questions(recorder):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            recorder._waiters.append(future)
            await future

    def _decide(self, recorder: SessionRecorder, call_id: str) -> str:
        # Whatever became of the first try, the answer stays the same.
        if call_id not in recorder.decisions:
            recorder.decisions[call_id] = self._new_decision()
        return recorder.decisions[call_id]


def open_questions(recorder: SessionRecorder) -> dict[str, str]:
    """Return the calls in doubt that are not answered yet, each with its run."""
    found: dict[str, str] = {}
    for seen in recorder.of_kind("tool_in_doubt", "tool_resolved", "tool_settled"):
        call_id = seen.body["call_id"]
        if seen.kind == "tool_in_doubt":
            found[call_id] = seen.body["run_id"]
        else:
            found.pop(call_id, None)
    return found


def frames(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[int, str, bytes]]:
    """Yield (seq, kind, body) of each complete frame of a session's stream; a partial frame was not sent."""
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


def text_of(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


@asynccontextmanager
async def recording_clients(
    rng: random.Random, decide: Callable[[], str] | None = None
) -> AsyncIterator[RecordingClients]:
    """Run clients that answer a call in doubt as `decide` returns, else at random."""
    random_decision = lambda: rng.choice(("skip", "mark_done", "mark_done", "rerun"))  # noqa: E731
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=AUTH_HEADERS) as http:
        clients = RecordingClients(http, rng, decide or random_decision)
        try:
            yield clients
        finally:
            await clients.close()
