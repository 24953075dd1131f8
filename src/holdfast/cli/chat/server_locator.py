"""Find the chat's server: one that runs over the data folder, or else one inside this process."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
from msgspec.structs import replace

from holdfast.cli.chat.client import Client, ServerEndpoint
from holdfast.cli.command_context import CommandContext
from holdfast.cli.dependencies import App
from holdfast.cli.run_server import run_server, stop_gracefully
from holdfast.cli.server_access import local_token, running_servers
from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.status import ServerStatus

PROBE_TIMEOUT_S = 5.0
TAKEOVER_DELAY_S = 10.0
"""The time to wait for a lost server before the chat starts its own."""
LOOPBACK = "127.0.0.1"
NO_MODEL_HERE = (
    "No server came back. This chat does not do its work itself: {model} is not known here, only the "
    "scripted demo is. Start `holdfast serve` where it was started before."
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def find_running_server(command: CommandContext, http: aiohttp.ClientSession) -> ServerEndpoint | None:
    """Return the first server over the data folder that answers; None if there is none."""
    if not command.has_store:
        return None
    async with command.store() as store:
        found = await running_servers(store)
    for server in found.values():
        token = local_token(command.settings.data) if server.auth else ""
        endpoint = ServerEndpoint(server.address or server.url, token, model=server.model)
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            limit = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
            async with http.get(f"{endpoint.url.rstrip('/')}/health/live", timeout=limit) as response:
                if response.status == 200:
                    return endpoint
    return None


@asynccontextmanager
async def connect_client(command: CommandContext, report: Callable[[str], None]) -> AsyncIterator[Client]:
    """Yield a client of the running server, or else of our own, and pass a notice about that to `report`.

    The client also starts our own server if the running one is lost and none comes back.
    """
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http, AsyncExitStack() as parts:
        finder = ServerFinder(command, http, parts, report)
        endpoint = await find_running_server(command, http)
        if endpoint is None:
            endpoint = await finder.start_own_server()
            report("No server runs here, so this chat does its work itself, until you leave.")
        finder.last_model = endpoint.model
        yield Client(http, finder, endpoint)


@asynccontextmanager
async def run_own_server(
    command: CommandContext, report: Callable[[str], None], check: Callable[[App], None]
) -> AsyncIterator[ServerEndpoint]:
    """Run a server in this process on a loopback port; `check` may refuse by raising an error."""

    async def stop(app: App, grace_s: float) -> None:
        if app.engine.runner.running:
            report("What is not finished goes on at the next start.")
        await stop_gracefully(app, grace_s)

    def on_ready(status: ServerStatus, link: str) -> None:
        for problem in status.problems:
            report(problem)
        ready.set()

    settings = replace(command.settings, host=LOOPBACK, public_url="", allowed_hosts=())
    server = command.dependencies.open_server(LOOPBACK, 0, or_next=False)
    ready, previous_handlers = asyncio.Event(), [signal.getsignal(signum) for signum in _SIGNALS]
    serving = asyncio.create_task(run_server(command.dependencies, settings, server, on_ready, stop, check))
    try:
        ready_task = asyncio.create_task(ready.wait())
        await asyncio.wait((serving, ready_task), return_when=asyncio.FIRST_COMPLETED)
        ready_task.cancel()
        if not ready.is_set():
            await serving
        # The server has installed its signal handlers. Restore the chat's and call the server's later, since
        # the chat has to end before the server.
        stop_handler: Any = signal.getsignal(signal.SIGTERM)
        for signum, previous in zip(_SIGNALS, previous_handlers, strict=True):
            signal.signal(signum, previous)
        yield ServerEndpoint(
            server.address, local_token(settings.data) if settings.auth == "on" else "", is_own=True
        )
        stop_handler(signal.SIGTERM, None)
        await serving
    finally:
        if not serving.done():
            serving.cancel()
            with suppress(asyncio.CancelledError, HoldfastError):
                await serving
        server.close()


class _ModelUnavailable(Exception):
    """Raised if only the scripted demo could continue what a real model began."""


class ServerFinder:
    """A finder that looks for a server, and starts its own after `takeover_delay_s` without one.

    `parts` closes that server. `last_model` is the model of the last server. If that was a real model and
    this process has none, it does not start a server: the scripted demo would continue the conversation.
    """

    def __init__(
        self,
        command: CommandContext,
        http: aiohttp.ClientSession,
        parts: AsyncExitStack,
        report: Callable[[str], None],
        takeover_delay_s: float = TAKEOVER_DELAY_S,
    ) -> None:
        self._command = command
        self._http = http
        self._parts = parts
        self._report = report
        self._takeover_delay_s = takeover_delay_s
        self.last_model = ""
        self._own_endpoint: ServerEndpoint | None = None
        self._lacks_model = False
        self._lost_at: float | None = None

    async def __call__(self) -> ServerEndpoint | None:
        if self._own_endpoint is not None:
            return self._own_endpoint
        # A store that is being closed or restored, or whose disk is full, may work again a moment later.
        with suppress(HoldfastError, OSError):
            found = await find_running_server(self._command, self._http)
            if found is not None:
                self._lost_at, self.last_model, self._lacks_model = None, found.model, False
                return found
            now = asyncio.get_running_loop().time()
            self._lost_at = self._lost_at or now
            if now - self._lost_at >= self._takeover_delay_s and not self._lacks_model:
                return await self._take_over()
        return None

    async def start_own_server(self) -> ServerEndpoint:
        """Start a server in this process and use it from now on."""
        own_server_context = run_own_server(self._command, self._report, self._check_model)
        self._own_endpoint = await self._parts.enter_async_context(own_server_context)
        return self._own_endpoint

    async def _take_over(self) -> ServerEndpoint | None:
        try:
            return await self.start_own_server()
        except _ModelUnavailable:
            self._lacks_model = True
            self._report(NO_MODEL_HERE.format(model=self.last_model))
            return None

    def _check_model(self, app: App) -> None:
        if app.model.name == DEMO and self.last_model not in ("", DEMO):
            raise _ModelUnavailable
