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

from holdfast.cli.chat.completion import Attached
from holdfast.cli.chat.wire import Happened, Listed, Problem, Receipt, StoredFile, read_frame
from holdfast.domain.limits import HEARTBEAT_S

T = TypeVar("T")
ASK_S_MAX = 30.0
SILENT_S_MAX = 3 * HEARTBEAT_S
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.0)
"""How long to wait before looking for a server again; the last one from there on."""
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_LINE_BYTES_MAX = 64_000_000


class Place(msgspec.Struct, frozen=True):
    """Where a server is, and what lets this command in there. `is_own`: it is inside of this process."""

    url: str
    token: str = ""
    is_own: bool = False
    model: str = ""


class Find(Protocol):
    """Looks for a server that answers; None when there is none."""

    def __call__(self) -> Awaitable[Place | None]: ...


class Away(Exception):
    """The server does not answer: it has gone, or is going."""


class Refused(Exception):
    """The server has answered with a problem."""

    def __init__(self, status: int, problem: Problem) -> None:
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
        find: Find,
        place: Place,
        on_change: Callable[[bool], None] = lambda is_here: None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.on_change = on_change
        self.place = place
        self.is_here = True
        self._http = http
        self._find = find
        self._sleep = sleep
        self._looking = asyncio.Lock()

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: object = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> T:
        """What the server answers. Raises Away or Refused."""
        sent = msgspec.json.encode(body if body is not None else {}) if method in ("POST", "PATCH") else None
        headers = {**self._headers, **headers, "content-type": "application/json"}
        if raw is not None:
            sent, headers["content-type"] = raw, "application/octet-stream"
        limit = aiohttp.ClientTimeout(total=ASK_S_MAX)
        try:
            async with self._http.request(
                method, self._url(path), data=sent, headers=headers, timeout=limit
            ) as answer:
                got = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Away(str(error)) from None
        _check(answer.status, got)
        return msgspec.json.decode(got or b"null", type=kind)

    async def get(self, path: str, kind: type[T]) -> T:
        return await self.ask("GET", path, kind)

    async def insist(
        self, method: str, path: str, kind: type[T], body: object = None, raw: bytes | None = None
    ) -> T:
        """Ask until there is an answer: only for what may be asked twice. Raises Refused."""
        while True:
            place = self.place
            try:
                return await self.ask(method, path, kind, body, raw)
            except Away:
                await self.come_back(place)

    async def follow(self, session_id: str, after: int) -> AsyncGenerator[Happened | Listed]:
        """Every event after the cursor, each once and in order, for ever, whatever becomes of the server.

        Raises Refused, when the conversation is not there.
        """
        while True:
            place = self.place
            try:
                async for told in self._stream(session_id, after):
                    if isinstance(told, Happened):
                        if told.seq <= after:
                            continue
                        after = told.seq
                    yield told
            except Away:
                pass
            await self.come_back(place)

    async def come_back(self, gone: Place) -> None:
        """Return once there is a server; `gone` is the one that did not answer."""
        async with self._looking:
            # Whoever waited here finds that another has found it.
            if self.place is not gone:
                return
            tries = 0
            while (found := await self._find()) is None:
                # One that is found at once has only ended the connection; nobody needs to hear of it.
                self._tell(False)
                await self._sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
                tries += 1
            # The same server again is another place: it is looked for each time that it did not answer.
            self.place = Place(found.url, found.token, found.is_own, found.model)
            self._tell(True)
            await self._sleep(PAUSES_S[0])

    def _tell(self, is_here: bool) -> None:
        if self.is_here != is_here:
            self.is_here = is_here
            self.on_change(is_here)

    async def _stream(self, session_id: str, after: int) -> AsyncIterator[Happened | Listed]:
        """One connection's worth. Raises Away or Refused."""
        path = f"/api/stream?session={session_id}:{after}&feed=true"
        limit = aiohttp.ClientTimeout(total=None, sock_connect=ASK_S_MAX, sock_read=SILENT_S_MAX)
        try:
            async with self._http.get(self._url(path), headers=self._headers, timeout=limit) as answer:
                if answer.status != 200:
                    _check(answer.status, await answer.read())
                async for event, body in _frames(answer.content):
                    told = read_frame(event, body, session_id)
                    if told is not None:
                        yield told
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Away(str(error)) from None

    @property
    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.place.token}"} if self.place.token else {}

    def _url(self, path: str) -> str:
        return self.place.url.rstrip("/") + path


def _check(status: int, body: bytes) -> None:
    """Raises Away or Refused, for an answer that is none."""
    if status < 400:
        return
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except msgspec.DecodeError:
        problem = Problem(detail=f"it answered with status {status}")
    if problem.code == "stopping":
        raise Away(problem.detail)
    raise Refused(status, problem)


async def _frames(content: Any) -> AsyncIterator[tuple[str, bytes]]:
    """Server-sent events: their names and their data. Lines may be longer than a reader's usual limit."""
    pile = bytearray()
    async for piece in content.iter_any():
        pile += piece
        while (end := pile.find(b"\n\n")) >= 0:
            frame, pile = bytes(pile[:end]), pile[end + 2 :]
            fields = dict(line.partition(b": ")[::2] for line in frame.split(b"\n"))
            if b"event" in fields and b"data" in fields:
                yield fields[b"event"].decode(), fields[b"data"]
        if len(pile) > _LINE_BYTES_MAX:
            raise Away("it sends a line without an end")


class Letter(msgspec.Struct, frozen=True):
    """A message and its key: however often it is sent, it is one message."""

    session_id: str
    text: str
    key: str
    files: tuple[Attached, ...] = ()
    anyway: bool = False
    """Send images also to a model that is not known to take them."""


async def send(client: Client, letter: Letter) -> Receipt:
    """Returns once the server has it, whatever becomes of the server meanwhile. Raises Refused."""
    body: dict[str, object] = {"text": letter.text, "key": letter.key}
    if letter.files:
        # The same content is kept once, so that a file may be sent twice.
        kept = [
            await client.insist("POST", f"/api/files?name={quote(each.name)}", StoredFile, raw=each.content)
            for each in letter.files
        ]
        body["attachments"] = [{"id": each.id, "name": each.name, "anyway": letter.anyway} for each in kept]
    return await client.insist("POST", f"/api/sessions/{letter.session_id}/turns", Receipt, body)


class Outbox:
    """Sends what is put in, one after the other. `on_refused` is told what the server does not take."""

    def __init__(self, client: Client, on_refused: Callable[[Letter, Refused], None]) -> None:
        self._client = client
        self._on_refused = on_refused
        self._waiting: asyncio.Queue[Letter] = asyncio.Queue()
        self.unsent: list[Letter] = []

    def put(self, letter: Letter) -> None:
        self.unsent.append(letter)
        self._waiting.put_nowait(letter)

    async def send_for_ever(self) -> None:
        while True:
            letter = await self._waiting.get()
            try:
                await send(self._client, letter)
            except Refused as refused:
                self._on_refused(letter, refused)
            finally:
                self.unsent.remove(letter)
