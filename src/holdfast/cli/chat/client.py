"""The HTTP client of `holdfast chat`: send requests, follow a conversation, deliver messages.

The chat reaches its server only through it, whether that runs in another process or in this one.
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
"""The delays between attempts to find a server; the last one repeats."""
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_FRAME_BYTES_MAX = 64_000_000


class ServerEndpoint(msgspec.Struct, frozen=True):
    """The address of a server and the token for it. `is_own`: it runs inside this process."""

    url: str
    token: str = ""
    is_own: bool = False
    model: str = ""


class FindServer(Protocol):
    """Find a server that answers; return None if there is none."""

    def __call__(self) -> Awaitable[ServerEndpoint | None]: ...


class ServerUnavailable(Exception):
    """The server does not answer or is stopping."""


class RequestRefused(Exception):
    """The server has answered with a problem document."""

    def __init__(self, status: int, problem: ProblemData) -> None:
        super().__init__(problem.detail)
        self.status = status
        self.problem = problem


class Client:
    """An HTTP client that reconnects to whichever process is the server at the moment.

    It calls `on_change` when it loses the server and when it has found one again.
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
        """Send a request and return the decoded response. Raises ServerUnavailable or RequestRefused."""
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
        """Repeat a request, which must be idempotent, until it is answered. Raises RequestRefused."""
        while True:
            endpoint = self.endpoint
            try:
                return await self.request(method, path, response_type, body, raw)
            except ServerUnavailable:
                await self.reconnect(endpoint)

    async def follow(self, session_id: str, after: int) -> AsyncGenerator[EventData | FeedUpdate]:
        """Yield every event after the cursor, each once and in order, across restarts of the server.

        Raises RequestRefused if the conversation does not exist.
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
        """Wait until there is a server; `lost` is the one that did not answer."""
        async with self._reconnect_lock:
            # Another task has reconnected while this one waited for the lock.
            if self.endpoint is not lost:
                return
            tries = 0
            while (found := await self._find_server()) is None:
                # Reported only now: a server that is found at once has only closed the connection.
                self._set_connected(False)
                await self._sleep(RECONNECT_DELAYS_S[min(tries, len(RECONNECT_DELAYS_S) - 1)])
                tries += 1
            # Always a new object, since callers detect by identity that the endpoint has changed.
            self.endpoint = ServerEndpoint(found.url, found.token, found.is_own, found.model)
            self._set_connected(True)
            await self._sleep(RECONNECT_DELAYS_S[0])

    def _set_connected(self, is_connected: bool) -> None:
        if self.is_connected != is_connected:
            self.is_connected = is_connected
            self.on_change(is_connected)

    async def _stream(self, session_id: str, after: int) -> AsyncIterator[EventData | FeedUpdate]:
        """Yield the updates of one connection. Raises ServerUnavailable or RequestRefused."""
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
    """Raise ServerUnavailable or RequestRefused if the response is an error."""
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
    """Yield the name and data of server-sent events, whose lines may exceed aiohttp's line limit."""
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
    """A message and its idempotency key: sent repeatedly, it is still one message."""

    session_id: str
    text: str
    key: str
    files: tuple[OutgoingFile, ...] = ()
    anyway: bool = False
    """True to send images also to a model that is not known to take them."""


async def send_message(client: Client, message: OutgoingMessage) -> ReceiptData:
    """Send a message and retry until a server has accepted it. Raises RequestRefused."""
    body: dict[str, object] = {"text": message.text, "key": message.key}
    if message.files:
        # The server stores equal content once, so an upload may be repeated.
        stored_files = [
            await client.request_until_answered(
                "POST", f"/api/files?name={quote(file.name)}", StoredFileData, raw=file.content
            )
            for file in message.files
        ]
        body["attachments"] = [
            {"id": file.id, "name": file.name, "anyway": message.anyway} for file in stored_files
        ]
    return await client.request_until_answered(
        "POST", f"/api/sessions/{message.session_id}/turns", ReceiptData, body
    )


class ChatOutbox:
    """A queue of messages, sent in order; it calls `on_refused` for those that the server refuses."""

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
