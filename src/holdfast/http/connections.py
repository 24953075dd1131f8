"""HTTP connections with limits on the size and duration of requests, enforced before any handler runs.

uvicorn reads a head of any length at any pace. Here a request must arrive within limits, and unauthenticated
connections cannot use up all there are.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Literal

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import (
    BODY_IDLE_S_MAX,
    BODY_S_MAX,
    CONNECTION_IDLE_S_MAX,
    CONNECTIONS_UNAUTHENTICATED_MAX,
    REQUEST_HEAD_BYTES_MAX,
    REQUEST_HEAD_S_MAX,
)
from holdfast.http.asgi import SECURITY_HEADERS
from holdfast.http.errors import BadRequest, HeadTooLarge, RequestTooSlow, problem_response
from holdfast.http.gate import AUTHENTICATED
from holdfast.http.sse.streams import ABORT

_CHECK_EVERY_S = 0.5
_LINGER_S = 1.0
"""Time for a refused client to read the response."""
_HEADER_OVERHEAD_BYTES = 4
"""Bytes of a header line beside its name and value."""


class _ErrorsOnlyLogger(logging.LoggerAdapter[logging.Logger]):
    """uvicorn's logger without warnings about malformed requests, with which anybody could fill the disk."""

    level = logging.ERROR

    def isEnabledFor(self, level: int) -> bool:
        return level >= self.level and super().isEnabledFor(level)


class ConnectionTimeouts:
    """Time limits of a connection, in seconds, and the most unauthenticated connections."""

    def __init__(
        self,
        head_s: float = REQUEST_HEAD_S_MAX,
        body_idle_s: float = BODY_IDLE_S_MAX,
        body_s: float = BODY_S_MAX,
        unauthenticated_max: int = CONNECTIONS_UNAUTHENTICATED_MAX,
        idle_s: int = CONNECTION_IDLE_S_MAX,
    ) -> None:
        self.head_s, self.body_idle_s, self.body_s, self.unauthenticated_max = (
            head_s,
            body_idle_s,
            body_s,
            unauthenticated_max,
        )
        self.idle_s = idle_s


class ConnectionRegistry:
    """The open connections; it cuts off slow ones while `run_timeout_checks` runs."""

    def __init__(self, now: Callable[[], float], timeouts: ConnectionTimeouts) -> None:
        self.now = now
        self._timeouts = timeouts
        self._unauthenticated: dict[HttpConnection, None] = {}
        self._reading: set[HttpConnection] = set()
        self.cut_off = 0

    def add(self, connection: "HttpConnection") -> None:
        self._unauthenticated[connection] = None
        if len(self._unauthenticated) > self._timeouts.unauthenticated_max:
            # The oldest: an honest client has authenticated long before.
            oldest = next(iter(self._unauthenticated))
            self.cut_off += 1
            self.remove(oldest)
            oldest.transport.abort()

    def mark_authenticated(self, connection: "HttpConnection") -> None:
        self._unauthenticated.pop(connection, None)

    def set_reading(self, connection: "HttpConnection", is_reading: bool) -> None:
        """Record whether the connection waits for the rest of a request."""
        (self._reading.add if is_reading else self._reading.discard)(connection)

    def remove(self, connection: "HttpConnection") -> None:
        self._unauthenticated.pop(connection, None)
        self._reading.discard(connection)

    async def run_timeout_checks(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            self.check_timeouts()

    def check_timeouts(self) -> None:
        """Refuse requests that have taken too long to arrive."""
        for connection in tuple(self._reading):
            if connection.has_timed_out(self.now(), self._timeouts):
                self.cut_off += 1
                connection.refuse(RequestTooSlow())


class HttpConnection(HttpToolsProtocol):
    """uvicorn's connection with limits, and a way to abort it: closing would wait for a stalled reader."""

    def __init__(self, registry: ConnectionRegistry, **options: Any) -> None:
        super().__init__(**options)
        self.logger = _ErrorsOnlyLogger(self.logger, {})  # type: ignore[assignment]
        self._registry = registry
        self._expected: Literal["head", "body", "nothing"] = "head"
        self._expected_since = self._last_data_at = registry.now()
        self._head_bytes = 0
        self._is_refused = self._is_authenticated = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._registry.add(self)
        self._registry.set_reading(self, True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._registry.remove(self)
        if self.scope is not None:
            self.scope.pop("extensions", None)  # Breaks a reference cycle: they refer to this connection.
        super().connection_lost(exc)

    def handle_data(self, data: bytes) -> None:
        """Feed received bytes to the parser, and refuse a head that is too large."""
        if self._is_refused:
            return
        self._last_data_at = self._registry.now()
        if self._expected == "nothing":
            self._expect("head")
        super().data_received(data)
        if self._expected == "head":
            self._head_bytes += len(data)
            if self._head_bytes > REQUEST_HEAD_BYTES_MAX:
                self.refuse(HeadTooLarge(limit=REQUEST_HEAD_BYTES_MAX))

    data_received = handle_data  # The name that asyncio calls.

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect("head")
        self.scope["extensions"] = {
            ABORT: {"call": self.transport.abort},
            AUTHENTICATED: {"call": self._mark_authenticated},
        }

    def on_headers_complete(self) -> None:
        size = len(self.url) + sum(
            len(name) + len(value) + _HEADER_OVERHEAD_BYTES for name, value in self.headers
        )
        if size > REQUEST_HEAD_BYTES_MAX:
            self.refuse(HeadTooLarge(limit=REQUEST_HEAD_BYTES_MAX))
        if self._is_refused:
            return
        super().on_headers_complete()
        self._expect("body")

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            super().on_message_complete()
            self._expect("nothing")

    def send_400_response(self, msg: str) -> None:
        self.refuse(BadRequest(why="it is not HTTP"))

    def has_timed_out(self, now: float, timeouts: ConnectionTimeouts) -> bool:
        if self._expected == "head":
            return now - self._expected_since > timeouts.head_s
        if self.flow.read_paused:
            # While we do not read, no data can arrive: the client must not pay for our delay.
            self._expected_since += now - self._last_data_at
            self._last_data_at = now
            return False
        limit_s = timeouts.body_s if self._is_authenticated else timeouts.body_idle_s
        return now - self._last_data_at > timeouts.body_idle_s or now - self._expected_since > limit_s

    def refuse(self, error: HoldfastError) -> None:
        """Send `error`, if no response has begun, and end the connection."""
        self._is_refused = True
        self._registry.remove(self)
        has_request = (
            self._expected == "body" or self._head_bytes > 0 or not isinstance(error, RequestTooSlow)
        )
        if not has_request or self._is_responding():
            self.transport.abort()
            return
        response = problem_response(error)
        head_lines = [f"HTTP/1.1 {error.status} {error.code}", f"content-type: {response.content_type}"]
        head_lines += [f"content-length: {len(response.body)}", "connection: close"]
        head_lines += [f"{name.decode()}: {value.decode()}" for name, value in SECURITY_HEADERS]
        self.transport.write("\r\n".join((*head_lines, "", "")).encode() + response.body)
        # Closing while data still arrives would reset the connection before the client reads the response.
        self.transport.write_eof()
        self.loop.call_later(_LINGER_S, self.transport.abort)

    def _is_responding(self) -> bool:
        """Return whether a response is under way, so that no other can be sent."""
        if self.cycle is None:
            return False
        # While it waits for a head, the last response belongs to the previous request.
        return self.cycle.response_started if self._expected == "body" else not self.cycle.response_complete

    def _mark_authenticated(self) -> None:
        self._is_authenticated = True
        self._registry.mark_authenticated(self)

    def _expect(self, what: Literal["head", "body", "nothing"]) -> None:
        self._expected, self._expected_since, self._head_bytes = what, self._registry.now(), 0
        self._registry.set_reading(self, what != "nothing")
