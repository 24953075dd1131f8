"""Build the HTTP application: its routes, its error handlers and the gate in front. No sockets here."""

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

from holdfast.auth.credentials import CredentialStore
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import HoldfastError, TooLarge
from holdfast.domain.limits import BODY_BYTES_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.engine.engine import Engine
from holdfast.http.authenticator import Authenticator
from holdfast.http.errors import (
    PROBLEM_MEDIA_TYPE,
    BadRequest,
    InternalError,
    MethodNotAllowed,
    NoSuchPage,
    problem_document,
)
from holdfast.http.gate import RequestGate
from holdfast.http.hosts import HostPolicy
from holdfast.http.metrics import Metrics
from holdfast.http.openapi import description
from holdfast.http.routes.about import HealthRoutes
from holdfast.http.routes.admin import RouteGroup, admin_routes
from holdfast.http.routes.file_changes import FileChangeRoutes
from holdfast.http.routes.files import FileRoutes
from holdfast.http.routes.page import PageRoutes
from holdfast.http.routes.password import PasswordRoutes
from holdfast.http.routes.rules import RuleRoutes
from holdfast.http.routes.runs import RunRoutes
from holdfast.http.routes.sessions import DraftRoutes, QuestionRoutes, SessionRoutes
from holdfast.http.routes.sign_in import SignInRoutes
from holdfast.http.routes.turns import TurnRoutes
from holdfast.http.sse.streams import Streams
from holdfast.http.strict_body import StrictBody
from holdfast.memory.info import NullMemoryService
from holdfast.services import Services
from holdfast.status import GetServerStatus

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
"""All paths. A test compares this list with the routes and with the documentation."""


def create_app(
    engine: Engine,
    read_status: GetServerStatus,
    streams: Streams,
    credential_store: CredentialStore,
    authenticator: Authenticator,
    hosts: HostPolicy,
    mask: MaskFunction = no_mask,
    services: Services | None = None,
) -> RequestGate:
    """Return the ASGI application behind its request gate; `mask` removes secrets from problem documents.

    Without `services` it has no administration routes.
    """
    error_handlers = _ErrorHandlers(mask)
    metrics = Metrics(
        engine, streams, services.memory if services is not None else NullMemoryService(), SystemClock(),
        services.channels.list_channels if services is not None else tuple,
        services.mcp.info if services is not None else tuple,
    )  # fmt: skip
    routes = partial(_routes, engine, read_status, metrics, credential_store, authenticator, hosts, services)
    document_cache: list[bytes] = []

    @get(description.OPENAPI_PATH)
    async def describe() -> Response[bytes]:
        # Built on the first request: most servers never get one.
        document_cache[:] = document_cache or [await asyncio.to_thread(description.build_document, routes())]
        return Response(document_cache[0], media_type="application/json")

    api = Api(
        [*routes(), *PageRoutes().routes(), describe],
        exception_handlers={
            HoldfastError: error_handlers.on_holdfast_error,
            HTTPException: error_handlers.on_http_exception,
            Exception: error_handlers.on_unexpected_error,
        },
        dto=StrictBody,
        return_dto=None,
        openapi_config=None,
        request_max_body_size=BODY_BYTES_MAX,
        logging_config=None,
        debug=False,
    )
    return RequestGate(api, streams, metrics, hosts, authenticator, mask)  # type: ignore[arg-type]


def _routes(
    engine: Engine,
    read_status: GetServerStatus,
    metrics: Metrics,
    credential_store: CredentialStore,
    authenticator: Authenticator,
    hosts: HostPolicy,
    services: Services | None,
) -> list[Any]:
    """Return new instances of all routes except the page's."""
    groups: tuple[RouteGroup, ...] = (
        SessionRoutes(engine, read_status, services.agents if services is not None else None),
        TurnRoutes(engine),
        RunRoutes(engine),
        FileChangeRoutes(engine.file_changes),
        RuleRoutes(engine.permissions),
        QuestionRoutes(engine.store),
        DraftRoutes(engine.drafts),
        FileRoutes(engine.store, engine.mask),
        HealthRoutes(read_status, metrics, services.models if services is not None else None),
        SignInRoutes(credential_store, authenticator, hosts),
        PasswordRoutes(credential_store, authenticator),
        *(admin_routes(services, read_status) if services is not None else ()),
    )
    return [route for group in groups for route in group.routes()]


class Api(Litestar):
    """A Litestar application without plugins for other installed libraries.

    Litestar would load pydantic, which MCP installs and no route uses: 5 MB and a seventh of the start time.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


class _ErrorHandlers:
    """Handlers that turn the errors of routes into problem documents."""

    def __init__(self, mask: MaskFunction) -> None:
        self._mask = mask

    def on_holdfast_error(self, request: Request[Any, Any, Any], error: HoldfastError) -> Response[bytes]:
        body = msgspec.json.encode(problem_document(error, self._mask))
        return Response(
            body,
            status_code=error.status,
            media_type=PROBLEM_MEDIA_TYPE,
            headers=dict(error.response_headers),
        )

    def on_http_exception(self, request: Request[Any, Any, Any], exception: HTTPException) -> Response[bytes]:
        """Respond to Litestar's own exception with one of our errors, so that clients see one format."""
        path = request.scope["path"]
        match exception.status_code:
            case 404:
                error: HoldfastError = NoSuchPage(path=path)
            case 405:
                methods = set((exception.headers or {}).get("allow", "GET").split(", "))
                allowed = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
                error = MethodNotAllowed(path=path, method=request.method, allowed=allowed)
            case 413:
                error = TooLarge(what="The body", size=f"more than {BODY_BYTES_MAX}", limit=BODY_BYTES_MAX)
            case _:
                error = BadRequest(why=_reason(exception))
        return self.on_holdfast_error(request, error)

    def on_unexpected_error(self, request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        """Log an unexpected exception in full and send the client only a code."""
        print(f"holdfast: {request.method} {request.scope['path']} failed", file=sys.stderr)
        traceback.print_exception(error)
        return self.on_holdfast_error(request, InternalError())


def _reason(exception: HTTPException) -> str:
    if isinstance(exception, ValidationException) and isinstance(exception.extra, list):
        messages = [f"{detail.get('key', '')}: {detail.get('message', '')}" for detail in exception.extra]
        return "; ".join(messages) or exception.detail
    return exception.detail
