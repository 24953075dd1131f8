"""What every request passes: is it meant for us, does it come from our own page, is there still time.

Pure ASGI, in front of everything else. Streams are answered from here, without anything between them and
their connection.
"""

import re

from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import SessionId
from holdfast.server.asgi import ALWAYS, Application, Receive, Scope, Send, header, send_answer
from holdfast.server.metrics import Metrics
from holdfast.server.problem import MethodNotAllowed, NotJson, Stopping, WrongHost, WrongOrigin, problem
from holdfast.server.streams import EVENTS_PATH, STREAM_PATH, Streams

_OWN_NAMES = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_READS = frozenset({"GET", "HEAD"})
_SENDS = frozenset({"POST", "PUT", "PATCH"})
_TO_THE_LAST = frozenset({"/health/live", "/metrics"})
"""Answered even while the server stops."""


class Gate:
    """The ASGI application. `stop_accepting` closes it for everyone but those who are inside."""

    def __init__(self, api: Application, streams: Streams, metrics: Metrics) -> None:
        self._api = api
        self._streams = streams
        self._metrics = metrics
        self._is_stopping = False

    def stop_accepting(self) -> None:
        self._is_stopping = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            if scope["path"] == STREAM_PATH or EVENTS_PATH.fullmatch(scope["path"]):
                await self._stream(scope, receive, send)
                return
        except HoldfastError as error:
            self._metrics.count(error.status)
            await send_answer(send, problem(error))
            return
        # The server itself leaves out the body of an answer to HEAD.
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._api(asked, receive, self._watched(send))

    def _check(self, scope: Scope) -> None:
        hosts = [value for key, value in scope["headers"] if key == b"host"]
        host = hosts[0].decode("latin-1") if len(hosts) == 1 else ""
        if not _OWN_NAMES.fullmatch(host):
            raise WrongHost(host=host or "(none)")
        origin = header(scope, b"origin")
        if origin and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            raise WrongOrigin(origin=origin[:200])
        if self._is_stopping and scope["path"] not in _TO_THE_LAST:
            raise Stopping()
        sent = header(scope, b"content-type").partition(";")[0].strip().lower()
        if sent != "application/json" and _has_body(scope):
            raise NotJson(content_type=sent[:100] or "nothing")

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if scope["method"] != "GET":
            raise MethodNotAllowed(path=path, method=scope["method"], allowed="GET")
        one = EVENTS_PATH.fullmatch(path)
        if one is not None:
            await self._streams.follow_one(SessionId(one[1]), scope, receive, send)
        else:
            await self._streams.follow_several(scope, receive, send)
        self._metrics.count(200)

    def _watched(self, send: Send) -> Send:
        async def watched(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
                assert isinstance(status, int) and isinstance(headers, list)
                self._metrics.count(status)
                told = {name for name, _ in headers}
                message["headers"] = [*headers, *(line for line in ALWAYS if line[0] not in told)]
            await send(message)

        return watched


def _has_body(scope: Scope) -> bool:
    """Whether something is sent: by these methods always, so that no form of another site gets through."""
    if scope["method"] in _SENDS:
        return True
    length = header(scope, b"content-length")
    return scope["method"] not in _READS and (
        length not in ("", "0") or bool(header(scope, b"transfer-encoding"))
    )
