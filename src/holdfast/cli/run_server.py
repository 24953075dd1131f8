"""A server at work, from the opening of its store until everyone has stopped: for `serve` and for `chat`."""

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
"""Nobody has to be told to wait for less."""


async def run_server(
    dependencies: Dependencies,
    settings: Settings,
    server: ListeningServer,
    on_ready: Callable[[ServerStatus, str], None],
    on_stop: Callable[[App, float], Awaitable[None]],
    check: Callable[[App], None] = lambda app: None,
) -> None:
    """Answer at `door` until told to stop, with all that a server has.

    `on_ready` is told what is there and the link to come in by; `on_stop` has the answers under way end. What
    `check` raises is raised before anything is begun.
    """
    async with AsyncExitStack() as stack:
        store = await dependencies.open_store(settings.data, durability=settings.durability)
        stack.push_async_callback(store.close)
        if store.pre_migration_copy is not None:
            print_stderr(
                f"What is stored was brought to a newer format; a copy from before is {store.pre_migration_copy}"
            )
        keyring = CredentialStore(
            store, SystemClock(), IdGenerator(SystemClock()), mask=dependencies.mask.mask
        )
        auth_config = get_auth_config(settings)
        await check_credentials_exist(settings, server.is_local, keyring)
        staff = await dependencies.build_app(store, settings, server.address)
        stack.push_async_callback(staff.close)
        check(staff)
        await _start_components(staff, stack)
        sweeper = asyncio.create_task(_sweep_periodically(store, settings.data))
        stack.push_async_callback(_cancel, sweeper)
        read_status = partial(_read_status, store, staff, settings)
        status = await read_status()
        announcement = announce_server(store, keyring, settings, server.address, staff.model.name)
        link = await stack.enter_async_context(announcement)
        await server.run(
            staff.engine,
            read_status,
            keyring,
            auth_config,
            on_ready=lambda: on_ready(status, link),
            on_stop=lambda: on_stop(staff, settings.stop_grace_s),
            services=_services(staff, settings, server.address),
        )


async def _start_components(app: App, stack: AsyncExitStack) -> None:
    """Have everyone at work, each after those whom they need; `stack` stops them the other way round."""
    await app.memory.open()
    # Before runs go on that use them, and stopped after those.
    if app.mcp is not None:
        app.mcp.start()
        stack.push_async_callback(app.mcp.stop)
    # Whoever asks first already sees what a crash cut off, and that it was.
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
        app.model.name, app.model.why, await app.model.takes(),
        app.sandbox, app.unprotected, app.memory.description, _problems(app),
        *await app.model.main_agent_model(),
    )  # fmt: skip


def _problems(app: App) -> tuple[str, ...]:
    """What is wrong with what people set up, in sentences."""
    servers = app.mcp.info() if app.mcp is not None else ()
    disconnected = [
        f"The MCP server {each.name} is not connected: {each.last_error}."
        for each in servers
        if each.last_error
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
    """Let what is under way reach the end of a step; what that leaves of the time is for memory."""
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
    """Keep the data folder small. Report a fault and go on: the next sweep does what this one left."""
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await sweep(store, folder)
        except (HoldfastError, OSError) as error:
            advice = error.advice if isinstance(error, HoldfastError) else ""
            print(f"holdfast: {error} {advice}".rstrip(), file=sys.stderr)
