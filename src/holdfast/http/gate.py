"""What every request passes: is it meant for us, who sends it, may they, is there still time.

Pure ASGI, in front of everything else. Streams are answered from here, without anything between them and
their connection.
"""

from collections.abc import Callable, Mapping

from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PUBLIC_BODY_BYTES_MAX
from holdfast.domain.secrets import Masking, identity
from holdfast.http.asgi import ALWAYS, Answer, Application, Receive, Scope, Send, header, send_answer
from holdfast.http.authenticator import Guard, Visitor
from holdfast.http.errors import CrossSite, MethodNotAllowed, NotAllowed, NotJson, Stopping, problem
from holdfast.http.hosts import Hosts, is_same_origin
from holdfast.http.metrics import Metrics
from holdfast.http.route_rights import right_needed
from holdfast.http.routes.channels import CALLED_PATHS
from holdfast.http.routes.files import FILES_PATH
from holdfast.http.sse.streams import ABORT, EVENTS_PATH, STREAM_PATH, Streams

PROVEN = "holdfast.proven"
"""The extension of a scope whose `call` says that somebody has come in on this connection."""
_READS = frozenset({"GET", "HEAD"})
_SENDS = frozenset({"POST", "PATCH"})
_TO_THE_LAST = frozenset({"/health/live", "/metrics"})
"""Answered even while the server stops."""


class Gate:
    """The ASGI application. `stop_accepting` closes it for everyone but those who are inside."""

    def __init__(
        self,
        api: Application,
        streams: Streams,
        metrics: Metrics,
        hosts: Hosts,
        guard: Guard,
        mask: Masking = identity,
    ) -> None:
        self._api = api
        self._streams = streams
        self._metrics = metrics
        self._hosts = hosts
        self._guard = guard
        self._mask = mask
        self._is_stopping = False

    def stop_accepting(self) -> None:
        self._is_stopping = True

    async def __call__(self, outer: Scope, receive: Receive, send: Send) -> None:
        try:
            scope = self._hosts.inside(outer)
            if scope is None:
                await self._answer(send, _moved(f"{self._hosts.base}/"))
                return
            self._hosts.check(scope)
            if self._is_stopping and scope["path"] not in _TO_THE_LAST:
                raise Stopping()
            visitor = await self._let_in(scope)
            _check_type(scope)
            if visitor is None and scope["path"] not in CALLED_PATHS:
                receive = _bounded(scope, receive)
            if scope["path"] == STREAM_PATH or EVENTS_PATH.fullmatch(scope["path"]):
                await self._stream(scope, receive, send, visitor)
                return
        except HoldfastError as error:
            await self._answer(send, problem(error, self._mask))
            return
        # The server itself leaves out the body of an answer to HEAD.
        asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._api(asked, receive, self._watched(send))

    async def _let_in(self, scope: Scope) -> Visitor | None:
        """Who sends this; None where nobody asks. Raises NotSignedIn, TooManyTries, NotAllowed, CrossSite."""
        right = right_needed(scope["method"], scope["path"])
        if right is None:
            return None
        visitor = await self._guard.visitor(scope)
        if right not in visitor.rights:
            raise NotAllowed(right=right, name=visitor.name)
        # A cookie comes along by itself, whoever makes a browser send something.
        if visitor.is_browser and scope["method"] not in _READS and not is_same_origin(scope):
            raise CrossSite(site="unknown")
        _extension(scope, PROVEN)()
        scope["user"] = visitor
        return visitor

    async def _stream(self, scope: Scope, receive: Receive, send: Send, visitor: Visitor | None) -> None:
        path = scope["path"]
        assert visitor is not None, "no stream is public"
        if scope["method"] != "GET":
            raise MethodNotAllowed(path=path, method=scope["method"], allowed="GET")
        one = EVENTS_PATH.fullmatch(path)
        with self._guard.inside(visitor, _extension(scope, ABORT)):
            if one is not None:
                await self._streams.follow_one(SessionId(one[1]), scope, receive, send)
            else:
                await self._streams.follow_several(scope, receive, send)
        self._metrics.count(200)

    async def _answer(self, send: Send, answer: Answer) -> None:
        self._metrics.count(answer.status)
        await send_answer(send, answer)

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


def _check_type(scope: Scope) -> None:
    """Raises NotJson."""
    sent = header(scope, b"content-type").partition(";")[0].strip().lower()
    # A file says itself what it is, and its content is looked at.
    if sent != "application/json" and scope["path"] != FILES_PATH and _has_body(scope):
        raise NotJson(content_type=sent[:100] or "nothing")


def _has_body(scope: Scope) -> bool:
    """Whether something is sent: by these methods always, so that no form of another site gets through."""
    if scope["method"] in _SENDS:
        return True
    length = header(scope, b"content-length")
    return scope["method"] not in _READS and (
        length not in ("", "0") or bool(header(scope, b"transfer-encoding"))
    )


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """Limit a body that comes without a sign-in, before any of it is held. Raises TooLarge."""
    limit, received = PUBLIC_BODY_BYTES_MAX, 0

    def check(size: int) -> None:
        if size > limit:
            raise TooLarge(what="The body", size=f"more than {limit}", limit=limit)

    length = header(scope, b"content-length")
    check(int(length) if length.isdecimal() else 0)

    async def bounded() -> dict[str, object]:
        nonlocal received
        message = await receive()
        part = message.get("body", b"")
        assert isinstance(part, bytes)
        received += len(part)
        check(received)
        return message

    return bounded


def _extension(scope: Scope, name: str) -> Callable[[], None]:
    offered: Mapping[str, Callable[[], None]] = (scope.get("extensions") or {}).get(name, {})
    return offered.get("call", lambda: None)


def _moved(where: str) -> Answer:
    return Answer(b"", "text/plain", 308, ((b"location", where.encode()),))
