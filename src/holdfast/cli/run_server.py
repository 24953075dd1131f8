"""Run a server for `serve` or `chat`: open the store, start the components, serve, and stop them."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from holdfast.auth.credentials import CredentialStore
from holdfast.cli.command_context import print_stderr
from holdfast.cli.dependencies import App, Dependencies, ListeningServer
from holdfast.cli.server_access import announce_server, check_credentials_exist, get_auth_config
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import IdGenerator
from holdfast.engine.workspaces import sweep
from holdfast.mcp.service import NoMcpServers
from holdfast.services import Services
from holdfast.settings.settings import Settings
from holdfast.status import ServerStatus
from holdfast.store.ports import Store

SWEEP_EVERY_S = 60.0
NOTICE_AFTER_S = 0.5
"""A shorter wait needs no notice."""


async def run_server(
    dependencies: Dependencies,
    settings: Settings,
    server: ListeningServer,
    on_ready: Callable[[ServerStatus, str], None],
    on_stop: Callable[[App, float], Awaitable[None]],
    check: Callable[[App], None] = lambda app: None,
) -> None:
    """Run all components and serve on `server` until a signal stops it.

    It passes the status and a sign-in link to `on_ready`, and awaits `on_stop`, which lets running answers
    end. An error of `check` is raised before any component starts.
    """
    async with AsyncExitStack() as stack:
        store = await dependencies.open_store(settings.data, durability=settings.durability)
        stack.push_async_callback(store.close)
        if store.pre_migration_copy is not None:
            print_stderr(
                "What is stored was brought to a newer format; "
                f"a copy from before is {store.pre_migration_copy}"
            )
        credential_store = CredentialStore(
            store, SystemClock(), IdGenerator(SystemClock()), mask=dependencies.mask.mask
        )
        auth_config = get_auth_config(settings)
        await check_credentials_exist(settings, server.is_local, credential_store)
        app = await dependencies.build_app(store, settings, server.address)
        stack.push_async_callback(app.close)
        check(app)
        await _start_components(app, stack)
        sweeper = asyncio.create_task(_sweep_periodically(store, settings.data))
        stack.push_async_callback(_cancel, sweeper)
        read_status = partial(_read_status, store, app, settings)
        status = await read_status()
        announcement = announce_server(store, credential_store, settings, server.address, app.model.name)
        link = await stack.enter_async_context(announcement)
        await server.run(
            app.engine,
            read_status,
            credential_store,
            auth_config,
            on_ready=lambda: on_ready(status, link),
            on_stop=lambda: on_stop(app, settings.stop_grace_s),
            services=_services(app, settings, server.address),
        )


async def _start_components(app: App, stack: AsyncExitStack) -> None:
    """Start the components, each after its dependencies; `stack` stops them in reverse order."""
    await app.memory.open()
    # Started before the runs that use them are resumed, and stopped after those.
    if app.mcp is not None:
        app.mcp.start()
        stack.push_async_callback(app.mcp.stop)
    # Started before serving: the first request already sees which runs a crash interrupted.
    await app.engine.start()
    stack.push_async_callback(app.memory.stop, 0.0)
    stack.push_async_callback(app.engine.stop, 0.0)
    await app.memory.start()
    await app.channels.start()
    stack.push_async_callback(app.channels.stop, 0.0)


async def _read_status(store: Store, app: App, settings: Settings) -> ServerStatus:
    totals = await store.totals()
    return ServerStatus(
        settings.data, settings.durability, totals.sessions, totals.events, totals.store_bytes,
        app.model.name, app.model.why, await app.model.supported_files(),
        app.sandbox, app.unprotected, app.memory.description, _problems(app),
        *await app.model.main_agent_model(),
    )  # fmt: skip


def _problems(app: App) -> tuple[str, ...]:
    """Return sentences about problems of models, agents and MCP servers."""
    servers = app.mcp.info() if app.mcp is not None else ()
    disconnected = [
        f"The MCP server {server.name} is not connected: {server.last_error}."
        for server in servers
        if server.last_error
    ]
    return (*app.models.problems(), *app.agents.problems(), *disconnected)


def _services(app: App, settings: Settings, address: str) -> Services:
    addresses = (settings.public_url, address) if settings.public_url else (address,)
    now = SystemClock().now_ms()
    return Services(
        app.settings, app.models, app.backups, app.channels, addresses, now, app.memory.service,
        agents=app.agents, mcp=app.mcp if app.mcp is not None else NoMcpServers(), local=app.local,
    )  # fmt: skip


async def _cancel(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def stop_gracefully(
    app: App, grace_s: float, report: Callable[[str], None] = lambda line: None
) -> None:
    """Let running answers reach the end of a step, and commit to memory in the remaining time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_s
    await app.channels.stop(grace_s)
    await app.engine.stop(max(0.0, deadline - loop.time()))
    notice_timer = loop.call_later(
        NOTICE_AFTER_S, report, "Remembering what was said. Ctrl+C again stops at once."
    )
    try:
        await app.memory.stop(max(0.0, deadline - loop.time()))
    finally:
        notice_timer.cancel()


async def _sweep_periodically(store: Store, folder: Path) -> None:
    """Sweep the data folder until cancelled. Print a fault and go on: the next sweep does the rest."""
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await sweep(store, folder)
        except (HoldfastError, OSError) as error:
            advice = error.advice if isinstance(error, HoldfastError) else ""
            print(f"holdfast: {error} {advice}".rstrip(), file=sys.stderr)
