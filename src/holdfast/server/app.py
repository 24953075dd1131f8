"""The route table: which path is answered by what. Knows HTTP, nothing of sockets."""

import re
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.overview import Overview
from holdfast.server.asgi import Answer, Receive, Scope, Send, header, send_answer
from holdfast.server.page import Page
from holdfast.server.problem import MethodNotAllowed, NoSuchPage, WrongHost, problem

Look = Callable[[], Awaitable[Overview]]
Route = Callable[[], Awaitable[Answer]]

PATHS = ("/", "/health/live", "/health/ready")
_OWN_NAMES = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?", re.IGNORECASE)


class App:
    """The ASGI application. `look` takes one look at the store; it may raise a StoreFault."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._page = Page()
        self._routes: Mapping[str, Route] = MappingProxyType(
            dict(zip(PATHS, (self._overview, self._live, self._ready), strict=True))
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._route(scope)()
        except HoldfastError as error:
            answer = problem(error)
        await send_answer(send, answer)

    def _route(self, scope: Scope) -> Route:
        host, path, method = header(scope, b"host"), scope["path"], scope["method"]
        if not _OWN_NAMES.fullmatch(host):
            raise WrongHost(host=host or "(none)")
        if path not in self._routes:
            raise NoSuchPage(path=path)
        if method not in ("GET", "HEAD"):
            raise MethodNotAllowed(path=path, method=method)
        return self._routes[path]

    async def _overview(self) -> Answer:
        return self._page.show(await self._look())

    async def _live(self) -> Answer:
        """The process answers; says nothing of its store."""
        return Answer(msgspec.json.encode({"status": "live"}))

    async def _ready(self) -> Answer:
        """The store answers too; a fault is a problem document, and nobody should be sent here."""
        await self._look()
        return Answer(msgspec.json.encode({"status": "ready"}))
