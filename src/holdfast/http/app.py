"""The route table: which path is answered by what. Knows HTTP, nothing of sockets."""

import asyncio
import sys
import traceback
from functools import partial
from typing import Any

import msgspec
from litestar import Litestar, Request, Response, get
from litestar.exceptions import HTTPException, ValidationException
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin

from holdfast.auth.credentials import Keyring
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.limits import BODY_BYTES_MAX
from holdfast.domain.secrets import Masking, identity
from holdfast.engine.engine import Engine
from holdfast.http.authenticator import Guard
from holdfast.http.errors import (
    MEDIA_TYPE,
    BadRequest,
    MethodNotAllowed,
    NoSuchPage,
    Unexpected,
    document,
)
from holdfast.http.gate import Gate
from holdfast.http.hosts import Hosts
from holdfast.http.metrics import Metrics
from holdfast.http.openapi import description
from holdfast.http.routes.about import HealthRoutes
from holdfast.http.routes.admin import Table, office_routes
from holdfast.http.routes.file_changes import ChangeRoutes
from holdfast.http.routes.files import FileRoutes
from holdfast.http.routes.page import PageRoutes
from holdfast.http.routes.password import PasswordRoutes
from holdfast.http.routes.rules import RuleRoutes
from holdfast.http.routes.runs import RunRoutes
from holdfast.http.routes.sessions import AttentionRoutes, DraftRoutes, SessionRoutes
from holdfast.http.routes.sign_in import SignInRoutes
from holdfast.http.routes.turns import TurnRoutes
from holdfast.http.sse.streams import Streams
from holdfast.http.strict_body import StrictBody
from holdfast.memory.info import NoMemory
from holdfast.services import Office
from holdfast.status import Look

PATHS = (
    "/", "/page/{name}", "/health/live", "/health/ready", "/metrics", "/openapi.json",
    "/api/sign-in", "/api/sign-out", "/api/me", "/api/tokens", "/api/tokens/{token_id}",
    "/api/sessions", "/api/sessions/{session_id}", "/api/sessions/{session_id}/turns",
    "/api/sessions/{session_id}/messages", "/api/sessions/{session_id}/events", "/api/stream",
    "/api/sessions/{session_id}/seen", "/api/questions", "/api/sessions/{session_id}/draft",
    "/api/sessions/{session_id}/undo", "/api/sessions/{session_id}/restore",
    "/api/sessions/{session_id}/retry", "/api/sessions/{session_id}/edit",
    "/api/sessions/{session_id}/fork", "/api/sessions/{session_id}/clear",
    "/api/sessions/{session_id}/compact", "/api/sessions/{session_id}/continue",
    "/api/runs/{run_id}", "/api/runs/{run_id}/cancel", "/api/runs/{run_id}/resume",
    "/api/runs/{run_id}/changes", "/api/runs/{run_id}/changes/restore",
    "/api/runs/{run_id}/tools/{call_id}", "/api/search", "/api/models",
    "/api/rules", "/api/rules/{rule_id}",
    "/api/files", "/api/files/{file_id}",
    "/api/settings", "/api/models/test", "/api/models/connect", "/api/models/disconnect",
    "/api/models/providers/{provider}", "/api/models/fallbacks",
    "/api/models/local", "/api/models/local/install",
    "/api/password", "/api/sign-ins", "/api/sign-ins/{sign_in_id}",
    "/api/backup", "/api/backups", "/api/backups/{name}", "/api/about",
    "/api/memory", "/api/memory/{memory_id}", "/api/memory/waiting",
    "/api/memory/waiting/{session_id}/{segment}", "/api/memory/commit",
    "/api/mcp", "/api/mcp/{name}/reconnect",
    "/api/channels", "/api/channels/{name}/test", "/api/channels/telegram/connect",
    "/api/channels/telegram/disconnect", "/api/channels/telegram", "/api/channels/webhook",
    "/api/agents", "/api/agents/{name}", "/api/agents/{name}/prompt", "/api/prompts",
    "/api/pairing", "/api/senders", "/api/senders/{channel}/{sender}",
)  # fmt: skip
"""Every path there is; a test compares this with the routes and with the documentation."""


def application(
    engine: Engine,
    look: Look,
    streams: Streams,
    keyring: Keyring,
    guard: Guard,
    hosts: Hosts,
    mask: Masking = identity,
    office: Office | None = None,
) -> Gate:
    """Everything that is answered, behind the gate that every request passes; problems go through `mask`.

    Without an office there is nothing to be changed of the server itself.
    """
    telling = _Telling(mask)
    metrics = Metrics(
        engine, streams, office.memory if office is not None else NoMemory(), SystemClock(),
        office.channels.told if office is not None else tuple,
        office.mcp.told if office is not None else tuple,
    )  # fmt: skip
    routes = partial(_routes, engine, look, metrics, keyring, guard, hosts, office)
    described: list[bytes] = []

    @get(description.OPENAPI_PATH)
    async def describe() -> Response[bytes]:
        # Made when it is first asked for: most servers never are.
        described[:] = described or [await asyncio.to_thread(description.describe, routes())]
        return Response(described[0], media_type="application/json")

    api = Api(
        [*routes(), *PageRoutes().table(), describe],
        exception_handlers={
            HoldfastError: telling.problem,
            HTTPException: telling.refusal,
            Exception: telling.fault,
        },
        dto=StrictBody,
        return_dto=None,
        openapi_config=None,
        request_max_body_size=BODY_BYTES_MAX,
        logging_config=None,
        debug=False,
    )
    return Gate(api, streams, metrics, hosts, guard, mask)  # type: ignore[arg-type]


def _routes(
    engine: Engine,
    look: Look,
    metrics: Metrics,
    keyring: Keyring,
    guard: Guard,
    hosts: Hosts,
    office: Office | None,
) -> list[Any]:
    """Every route but the page's, made anew each time."""
    tables: tuple[Table, ...] = (
        SessionRoutes(engine, look, office.agents if office is not None else None),
        TurnRoutes(engine),
        RunRoutes(engine),
        ChangeRoutes(engine.changes),
        RuleRoutes(engine.permissions),
        AttentionRoutes(engine.store),
        DraftRoutes(engine.drafts),
        FileRoutes(engine.store, engine.mask),
        HealthRoutes(look, metrics, office.models if office is not None else None),
        SignInRoutes(keyring, guard, hosts),
        PasswordRoutes(keyring, guard),
        *(office_routes(office, look) if office is not None else ()),
    )
    return [route for table in tables for route in table.table()]


class Api(Litestar):
    """Litestar without what it adds for whatever else happens to be installed.

    It would load pydantic, which MCP brings along and no route uses: 5 MB and a seventh of a start.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


class _Telling:
    """What becomes of an error that a route raises."""

    def __init__(self, mask: Masking) -> None:
        self._mask = mask

    def problem(self, request: Request[Any, Any, Any], error: HoldfastError) -> Response[bytes]:
        body = msgspec.json.encode(document(error, self._mask))
        return Response(body, status_code=error.status, media_type=MEDIA_TYPE, headers=dict(error.head))

    def refusal(self, request: Request[Any, Any, Any], refusal: HTTPException) -> Response[bytes]:
        """Litestar's own words become ours: one shape and one set of codes, whoever refuses."""
        path = request.scope["path"]
        match refusal.status_code:
            case 404:
                error: HoldfastError = NoSuchPage(path=path)
            case 405:
                methods = set((refusal.headers or {}).get("allow", "GET").split(", "))
                allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
                error = MethodNotAllowed(path=path, method=request.method, allowed=allowed)
            case 413:
                error = TooLarge(what="The body", size=f"more than {BODY_BYTES_MAX}", limit=BODY_BYTES_MAX)
            case _:
                error = BadRequest(why=_why(refusal))
        return self.problem(request, error)

    def fault(self, request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        """A fault of ours: the log has all of it, the client a code."""
        print(f"holdfast: {request.method} {request.scope['path']} failed", file=sys.stderr)
        traceback.print_exception(error)
        return self.problem(request, Unexpected())


def _why(refusal: HTTPException) -> str:
    if isinstance(refusal, ValidationException) and isinstance(refusal.extra, list):
        found = [f"{each.get('key', '')}: {each.get('message', '')}" for each in refusal.extra]
        return "; ".join(found) or refusal.detail
    return refusal.detail
