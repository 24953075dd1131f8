"""The client of `holdfast chat`: asks a server, follows a conversation, sends messages until they are kept.

It is the only door of the chat: with a server of the machine and with the chat's own it is the same.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import aiohttp
import msgspec

from holdfast.cli.chat.completion import OutgoingFile
from holdfast.cli.chat.response_data import (
    EventData,
    FeedUpdate,
    ProblemData,
    ReceiptData,
    StoredFileData,
    read_frame,
)
from holdfast.domain.limits import HEARTBEAT_S

T = TypeVar("T")
REQUEST_TIMEOUT_S = 30.0
STREAM_READ_TIMEOUT_S = 3 * HEARTBEAT_S
RECONNECT_DELAYS_S = (0.1, 0.2, 0.4, 0.8, 1.0)
"""How long to wait before looking for a server again; the last one from there on."""
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_FRAME_BYTES_MAX = 64_000_000


class ServerEndpoint(msgspec.Struct, frozen=True):
    """Where a server is, and what lets this command in there. `is_own`: it is inside of this process."""

    url: str
    token: str = ""
    is_own: bool = False
    model: str = ""


class FindServer(Protocol):
    """Looks for a server that answers; None when there is none."""

    def __call__(self) -> Awaitable[ServerEndpoint | None]: ...


class ServerUnavailable(Exception):
    """The server does not answer: it has gone, or is going."""


class RequestRefused(Exception):
    """The server has answered with a problem."""

    def __init__(self, status: int, problem: ProblemData) -> None:
        super().__init__(problem.detail)
        self.status = status
        self.problem = problem


class Client:
    """One conversation partner, whichever process that is at the moment.

    `on_change` is told when the server has gone and when there is one again.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        find_server: FindServer,
        endpoint: ServerEndpoint,
        on_change: Callable[[bool], None] = lambda is_here: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.on_change = on_change
        self.endpoint = endpoint
        self.is_connected = True
        self._http = http
        self._find_server = find_server
        self._sleep = sleep
        self._reconnect_lock = asyncio.Lock()

    async def request(
        self,
        method: str,
        path: str,
        response_type: type[T],
        body: object = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> T:
        """What the server answers. Raises Away or Refused."""
        payload = (
            msgspec.json.encode(body if body is not None else {}) if method in ("POST", "PATCH") else None
        )
        headers = {**self._headers, **headers, "content-type": "application/json"}
        if raw is not None:
            payload, headers["content-type"] = raw, "application/octet-stream"
        limit = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        try:
            async with self._http.request(
                method, self._url(path), data=payload, headers=headers, timeout=limit
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServerUnavailable(str(error)) from None
        _raise_for_problem(response.status, content)
        return msgspec.json.decode(content or b"null", type=response_type)

    async def get(self, path: str, response_type: type[T]) -> T:
        return await self.request("GET", path, response_type)

    async def request_until_answered(
        self, method: str, path: str, response_type: type[T], body: object = None, raw: bytes | None = None
    ) -> T:
        """Ask until there is an answer: only for what may be asked twice. Raises Refused."""
        while True:
            endpoint = self.endpoint
            try:
                return await self.request(method, path, response_type, body, raw)
            except ServerUnavailable:
                await self.reconnect(endpoint)

    async def follow(self, session_id: str, after: int) -> AsyncGenerator[EventData | FeedUpdate]:
        """Every event after the cursor, each once and in order, for ever, whatever becomes of the server.

        Raises Refused, when the conversation is not there.
        """
        while True:
            endpoint = self.endpoint
            try:
                async for update in self._stream(session_id, after):
                    if isinstance(update, EventData):
                        if update.seq <= after:
                            continue
                        after = update.seq
                    yield update
            except ServerUnavailable:
                pass
            await self.reconnect(endpoint)

    async def reconnect(self, lost: ServerEndpoint) -> None:
        """Return once there is a server; `gone` is the one that did not answer."""
        async with self._reconnect_lock:
            # Whoever waited here finds that another has found it.
            if self.endpoint is not lost:
                return
            tries = 0
            while (found := await self._find_server()) is None:
                # One that is found at once has only ended the connection; nobody needs to hear of it.
                self._set_connected(False)
                await self._sleep(RECONNECT_DELAYS_S[min(tries, len(RECONNECT_DELAYS_S) - 1)])
                tries += 1
            # The same server again is another place: it is looked for each time that it did not answer.
            self.endpoint = ServerEndpoint(found.url, found.token, found.is_own, found.model)
            self._set_connected(True)
            await self._sleep(RECONNECT_DELAYS_S[0])

    def _set_connected(self, is_connected: bool) -> None:
        if self.is_connected != is_connected:
            self.is_connected = is_connected
            self.on_change(is_connected)

    async def _stream(self, session_id: str, after: int) -> AsyncIterator[EventData | FeedUpdate]:
        """One connection's worth. Raises Away or Refused."""
        path = f"/api/stream?session={session_id}:{after}&feed=true"
        limit = aiohttp.ClientTimeout(
            total=None, sock_connect=REQUEST_TIMEOUT_S, sock_read=STREAM_READ_TIMEOUT_S
        )
        try:
            async with self._http.get(self._url(path), headers=self._headers, timeout=limit) as response:
                if response.status != 200:
                    _raise_for_problem(response.status, await response.read())
                async for event, body in _frames(response.content):
                    update = read_frame(event, body, session_id)
                    if update is not None:
                        yield update
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServerUnavailable(str(error)) from None

    @property
    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.endpoint.token}"} if self.endpoint.token else {}

    def _url(self, path: str) -> str:
        return self.endpoint.url.rstrip("/") + path


def _raise_for_problem(status: int, body: bytes) -> None:
    """Raises Away or Refused, for an answer that is none."""
    if status < 400:
        return
    try:
        problem = msgspec.json.decode(body, type=ProblemData)
    except msgspec.DecodeError:
        problem = ProblemData(detail=f"it answered with status {status}")
    if problem.code == "stopping":
        raise ServerUnavailable(problem.detail)
    raise RequestRefused(status, problem)


async def _frames(content: Any) -> AsyncIterator[tuple[str, bytes]]:
    """Server-sent events: their names and their data. Lines may be longer than a reader's usual limit."""
    buffer = bytearray()
    async for chunk in content.iter_any():
        buffer += chunk
        while (end := buffer.find(b"\n\n")) >= 0:
            frame, buffer = bytes(buffer[:end]), buffer[end + 2 :]
            fields = dict(line.partition(b": ")[::2] for line in frame.split(b"\n"))
            if b"event" in fields and b"data" in fields:
                yield fields[b"event"].decode(), fields[b"data"]
        if len(buffer) > _FRAME_BYTES_MAX:
            raise ServerUnavailable("it sends a line without an end")


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message and its key: however often it is sent, it is one message."""

    session_id: str
    text: str
    key: str
    files: tuple[OutgoingFile, ...] = ()
    anyway: bool = False
    """Send images also to a model that is not known to take them."""


async def send_message(client: Client, message: OutgoingMessage) -> ReceiptData:
    """Returns once the server has it, whatever becomes of the server meanwhile. Raises Refused."""
    body: dict[str, object] = {"text": message.text, "key": message.key}
    if message.files:
        # The same content is kept once, so that a file may be sent twice.
        stored_files = [
            await client.request_until_answered(
                "POST", f"/api/files?name={quote(each.name)}", StoredFileData, raw=each.content
            )
            for each in message.files
        ]
        body["attachments"] = [
            {"id": each.id, "name": each.name, "anyway": message.anyway} for each in stored_files
        ]
    return await client.request_until_answered(
        "POST", f"/api/sessions/{message.session_id}/turns", ReceiptData, body
    )


class ChatOutbox:
    """Sends what is put in, one after the other. `on_refused` is told what the server does not take."""

    def __init__(self, client: Client, on_refused: Callable[[OutgoingMessage, RequestRefused], None]) -> None:
        self._client = client
        self._on_refused = on_refused
        self._queue: asyncio.Queue[OutgoingMessage] = asyncio.Queue()
        self.unsent: list[OutgoingMessage] = []

    def put(self, message: OutgoingMessage) -> None:
        self.unsent.append(message)
        self._queue.put_nowait(message)

    async def send_messages(self) -> None:
        while True:
            message = await self._queue.get()
            try:
                await send_message(self._client, message)
            except RequestRefused as refused:
                self._on_refused(message, refused)
            finally:
                self.unsent.remove(message)
