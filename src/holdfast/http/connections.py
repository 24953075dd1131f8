"""Connections, and how long and how large what comes over them may be before anybody looks at it.

uvicorn reads a head of any length at any pace. Here a request must arrive within limits, and connections on
which nobody has come in yet cannot use up all there are.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import (
    BODY_S_MAX,
    BODY_SILENT_S_MAX,
    CONNECTION_IDLE_S_MAX,
    CONNECTIONS_NEW_MAX,
    HEAD_BYTES_MAX,
    HEAD_S_MAX,
)
from holdfast.http.asgi import ALWAYS
from holdfast.http.errors import BadRequest, HeadTooLarge, TooSlow, problem
from holdfast.http.gate import PROVEN
from holdfast.http.sse.streams import ABORT

_LOOK_EVERY_S = 0.5
_LINGER_S = 1.0
"""How long who was refused may take to hear it."""
_LINE_BYTES = 4
"""What a header has beside its name and value."""


class _Faults(logging.LoggerAdapter[logging.Logger]):
    """uvicorn's log without what others send wrongly: it is answered, and anybody could fill a disk by it."""

    level = logging.ERROR

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.level and super().isEnabledFor(level)


class Patience:
    """How long is waited for what, in seconds."""

    def __init__(
        self,
        head_s: float = HEAD_S_MAX,
        silent_s: float = BODY_SILENT_S_MAX,
        body_s: float = BODY_S_MAX,
        new_max: int = CONNECTIONS_NEW_MAX,
        idle_s: int = CONNECTION_IDLE_S_MAX,
    ) -> None:
        self.head_s, self.silent_s, self.body_s, self.new_max = head_s, silent_s, body_s, new_max
        self.idle_s = idle_s


class Connections:
    """All that are open. `look_for_ever` must be running for slow ones to be cut off."""

    def __init__(self, now: Callable[[], float], patience: Patience) -> None:
        self.now = now
        self._patience = patience
        self._new: dict[Connection, None] = {}
        self._reading: set[Connection] = set()
        self.cut_off = 0

    def opened(self, connection: "Connection") -> None:
        self._new[connection] = None
        if len(self._new) > self._patience.new_max:
            # The oldest: whoever means it has come in long since.
            oldest = next(iter(self._new))
            self.cut_off += 1
            self.closed(oldest)
            oldest.transport.abort()

    def proven(self, connection: "Connection") -> None:
        self._new.pop(connection, None)

    def reading(self, connection: "Connection", is_so: bool) -> None:
        """Whether the rest of a request is awaited on it."""
        (self._reading.add if is_so else self._reading.discard)(connection)

    def closed(self, connection: "Connection") -> None:
        self._new.pop(connection, None)
        self._reading.discard(connection)

    async def look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            self.look()

    def look(self) -> None:
        """Cut off whoever has taken too long."""
        for connection in tuple(self._reading):
            if connection.is_late(self.now(), self._patience):
                self.cut_off += 1
                connection.refuse(TooSlow())


class Connection(HttpToolsProtocol):
    """uvicorn's, with limits, and a way to end one whose reader takes nothing: closing would wait for it."""

    def __init__(self, connections: Connections, **more: Any) -> None:
        super().__init__(**more)
        self.logger = _Faults(self.logger, {})  # type: ignore[assignment]
        self._all = connections
        self._awaits: Literal["head", "body", "nothing"] = "head"
        self._since = self._heard_at = connections.now()
        self._head_bytes = 0
        self._is_refused = self._is_proven = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._all.opened(self)
        self._all.reading(self, True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.closed(self)
        if self.scope is not None:
            self.scope.pop("extensions", None)  # They know this connection, which knows its scope.
        super().connection_lost(exc)

    def hear(self, data: bytes) -> None:
        """Some more of a request has come."""
        if self._is_refused:
            return
        self._heard_at = self._all.now()
        if self._awaits == "nothing":
            self._await("head")
        super().data_received(data)
        if self._awaits == "head":
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.refuse(HeadTooLarge(limit=HEAD_BYTES_MAX))

    data_received = hear  # As asyncio calls it.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await("head")
        self.scope["extensions"] = {
            ABORT: {"call": self.transport.abort},
            PROVEN: {"call": self._prove},
        }

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + _LINE_BYTES for name, value in self.headers)
        if size > HEAD_BYTES_MAX:
            self.refuse(HeadTooLarge(limit=HEAD_BYTES_MAX))
        if self._is_refused:
            return
        super().on_headers_complete()
        self._await("body")

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            super().on_message_complete()
            self._await("nothing")

    def send_400_response(self, msg: str) -> None:
        self.refuse(BadRequest(why="it is not HTTP"))

    def is_late(self, now: float, patience: Patience) -> bool:
        if self._awaits == "head":
            return now - self._since > patience.head_s
        if self.flow.read_paused:
            # Nothing can come while we do not read: this is our own time.
            self._since += now - self._heard_at
            self._heard_at = now
            return False
        most_s = patience.body_s if self._is_proven else patience.silent_s
        return now - self._heard_at > patience.silent_s or now - self._since > most_s

    def refuse(self, error: HoldfastError) -> None:
        """Say why, where an answer can still be begun, and end the connection."""
        self._is_refused = True
        self._all.closed(self)
        is_asked = self._awaits == "body" or self._head_bytes > 0 or not isinstance(error, TooSlow)
        if not is_asked or self._is_answering():
            self.transport.abort()
            return
        answer = problem(error)
        lines = [f"HTTP/1.1 {error.status} {error.code}", f"content-type: {answer.content_type}"]
        lines += [f"content-length: {len(answer.body)}", "connection: close"]
        lines += [f"{name.decode()}: {value.decode()}" for name, value in ALWAYS]
        self.transport.write("\r\n".join((*lines, "", "")).encode() + answer.body)
        # Closed while more is coming, the connection would be reset, and with it what was just said.
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)

    def _is_answering(self) -> bool:
        """Whether an answer has begun that another one cannot follow now."""
        if self.cycle is None:
            return False
        # While a head is awaited, the last answer belongs to the request before.
        return self.cycle.response_started if self._awaits == "body" else not self.cycle.response_complete

    def _prove(self) -> None:
        self._is_proven = True
        self._all.proven(self)

    def _await(self, what: Literal["head", "body", "nothing"]) -> None:
        self._awaits, self._since, self._head_bytes = what, self._all.now(), 0
        self._all.reading(self, what != "nothing")
