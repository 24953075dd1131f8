"""Check every request: host, origin, authentication, authorization, and whether the server is stopping.

It is pure ASGI in front of everything else. It serves the streams itself, so that nothing stands between them
and their connection.
"""

from collections.abc import Callable, Mapping

from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PUBLIC_BODY_BYTES_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.http.asgi import (
    SECURITY_HEADERS,
    Application,
    AsgiResponse,
    Receive,
    Scope,
    Send,
    header,
    send_response,
)
from holdfast.http.authenticator import Authenticator, Principal
from holdfast.http.errors import (
    CrossSite,
    MethodNotAllowed,
    NotAllowed,
    NotJson,
    ServerShuttingDown,
    problem_response,
)
from holdfast.http.hosts import HostPolicy, is_same_origin
from holdfast.http.metrics import Metrics
from holdfast.http.route_rights import required_right
from holdfast.http.routes.channels import INBOUND_PATHS
from holdfast.http.routes.files import FILES_PATH
from holdfast.http.sse.streams import ABORT, EVENTS_PATH, STREAM_PATH, Streams

AUTHENTICATED = "holdfast.proven"
"""The ASGI extension whose `call` marks the connection as authenticated."""
_READ_METHODS = frozenset({"GET", "HEAD"})
_BODY_METHODS = frozenset({"POST", "PATCH"})
_ALLOWED_WHILE_STOPPING = frozenset({"/health/live", "/metrics"})
"""Paths that are served even while the server stops."""


class RequestGate:
    """The ASGI application. After `stop_accepting` it refuses new requests and finishes open ones."""

    def __init__(
        self,
        api: Application,
        streams: Streams,
        metrics: Metrics,
        hosts: HostPolicy,
        authenticator: Authenticator,
        mask: MaskFunction = no_mask,
    ) -> None:
        self._api = api
        self._streams = streams
        self._metrics = metrics
        self._hosts = hosts
        self._authenticator = authenticator
        self._mask = mask
        self._is_stopping = False

    def stop_accepting(self) -> None:
        self._is_stopping = True

    async def __call__(self, outer: Scope, receive: Receive, send: Send) -> None:
        try:
            scope = self._hosts.strip_base_path(outer)
            if scope is None:
                await self._respond(send, _redirect(f"{self._hosts.base}/"))
                return
            self._hosts.check(scope)
            if self._is_stopping and scope["path"] not in _ALLOWED_WHILE_STOPPING:
                raise ServerShuttingDown()
            principal = await self._authorize(scope)
            _check_content_type(scope)
            if principal is None and scope["path"] not in INBOUND_PATHS:
                receive = _limit_body(scope, receive)
            if scope["path"] == STREAM_PATH or EVENTS_PATH.fullmatch(scope["path"]):
                await self._stream(scope, receive, send, principal)
                return
        except HoldfastError as error:
            await self._respond(send, problem_response(error, self._mask))
            return
        # uvicorn leaves out the body of a response to HEAD.
        api_scope = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
        await self._api(api_scope, receive, self._wrap_send(send))

    async def _authorize(self, scope: Scope) -> Principal | None:
        """Return who sends this; None for a public path.

        Raises NotSignedIn, TooManyAttempts, NotAllowed, CrossSite.
        """
        right = required_right(scope["method"], scope["path"])
        if right is None:
            return None
        principal = await self._authenticator.authenticate(scope)
        if right not in principal.rights:
            raise NotAllowed(right=right, name=principal.name)
        # Browsers send the cookie with every request, also those that another site's page causes.
        if principal.is_browser and scope["method"] not in _READ_METHODS and not is_same_origin(scope):
            raise CrossSite(site="unknown")
        _extension(scope, AUTHENTICATED)()
        scope["user"] = principal
        return principal

    async def _stream(self, scope: Scope, receive: Receive, send: Send, principal: Principal | None) -> None:
        path = scope["path"]
        assert principal is not None, "no stream is public"
        if scope["method"] != "GET":
            raise MethodNotAllowed(path=path, method=scope["method"], allowed="GET")
        one = EVENTS_PATH.fullmatch(path)
        with self._authenticator.track(principal, _extension(scope, ABORT)):
            if one is not None:
                await self._streams.stream_session(SessionId(one[1]), scope, receive, send)
            else:
                await self._streams.stream_sessions(scope, receive, send)
        self._metrics.count_response(200)

    async def _respond(self, send: Send, response: AsgiResponse) -> None:
        self._metrics.count_response(response.status)
        await send_response(send, response)

    def _wrap_send(self, send: Send) -> Send:
        async def send_with_headers(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                status, headers = message["status"], message["headers"]
                assert isinstance(status, int) and isinstance(headers, list)
                self._metrics.count_response(status)
                present = {name for name, _ in headers}
                message["headers"] = [
                    *headers,
                    *(line for line in SECURITY_HEADERS if line[0] not in present),
                ]
            await send(message)

        return send_with_headers


def _check_content_type(scope: Scope) -> None:
    """Raise NotJson if the request has a body that is not JSON."""
    content_type = header(scope, b"content-type").partition(";")[0].strip().lower()
    # The type of an uploaded file is detected from its content.
    if content_type != "application/json" and scope["path"] != FILES_PATH and _has_body(scope):
        raise NotJson(content_type=content_type[:100] or "nothing")


def _has_body(scope: Scope) -> bool:
    """Return whether the request has a body; POST and PATCH always count, so that no foreign form passes."""
    if scope["method"] in _BODY_METHODS:
        return True
    length = header(scope, b"content-length")
    return scope["method"] not in _READ_METHODS and (
        length not in ("", "0") or bool(header(scope, b"transfer-encoding"))
    )


def _limit_body(scope: Scope, receive: Receive) -> Receive:
    """Limit the body of an unauthenticated request before any of it is buffered. Raises TooLarge."""
    limit, received = PUBLIC_BODY_BYTES_MAX, 0

    def check(size: int) -> None:
        if size > limit:
            raise TooLarge(what="The body", size=f"more than {limit}", limit=limit)

    length = header(scope, b"content-length")
    check(int(length) if length.isdecimal() else 0)

    async def limited_receive() -> dict[str, object]:
        nonlocal received
        message = await receive()
        chunk = message.get("body", b"")
        assert isinstance(chunk, bytes)
        received += len(chunk)
        check(received)
        return message

    return limited_receive


def _extension(scope: Scope, name: str) -> Callable[[], None]:
    extension: Mapping[str, Callable[[], None]] = (scope.get("extensions") or {}).get(name, {})
    return extension.get("call", lambda: None)


def _redirect(location: str) -> AsgiResponse:
    return AsgiResponse(b"", "text/plain", 308, ((b"location", location.encode()),))
