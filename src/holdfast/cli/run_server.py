"""A server at work, from the opening of its store until everyone has stopped: for `serve` and for `chat`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

from holdfast.auth.credentials import Keyring
from holdfast.cli.command_context import note
from holdfast.cli.server_access import announced, check_keys, entrance_of
from holdfast.cli.wiring import Door, Staff, Wiring
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import Ids
from holdfast.engine.workspaces import sweep
from holdfast.mcp.service import NoMcp
from holdfast.services import Office
from holdfast.settings.settings import Settings
from holdfast.status import Overview
from holdfast.store.ports import Store

SWEEP_EVERY_S = 60.0
SAY_AFTER_S = 0.5
"""Nobody has to be told to wait for less."""


async def attend(
    wiring: Wiring,
    settings: Settings,
    door: Door,
    on_ready: Callable[[Overview, str], None],
    on_stop: Callable[[Staff, float], Awaitable[None]],
    check: Callable[[Staff], None] = lambda staff: None,
) -> None:
    """Answer at `door` until told to stop, with all that a server has.

    `on_ready` is told what is there and the link to come in by; `on_stop` has the answers under way end. What
    `check` raises is raised before anything is begun.
    """
    async with AsyncExitStack() as stack:
        store = await wiring.open_store(settings.data, durability=settings.durability)
        stack.push_async_callback(store.close)
        if store.copy_before is not None:
            note(f"What is stored was brought to a newer format; a copy from before is {store.copy_before}")
        keyring = Keyring(store, SystemClock(), Ids(SystemClock()), mask=wiring.mask.whole)
        entrance = entrance_of(settings)
        await check_keys(settings, door.is_local, keyring)
        staff = await wiring.hire(store, settings, door.address)
        stack.push_async_callback(staff.dismiss)
        check(staff)
        await _start(staff, stack)
        sweeper = asyncio.create_task(_sweep_for_ever(store, settings.data))
        stack.push_async_callback(_end, sweeper)
        look = partial(_look, store, staff, settings)
        overview = await look()
        announcing = announced(store, keyring, settings, door.address, staff.model.name)
        link = await stack.enter_async_context(announcing)
        await door.run(
            staff.engine,
            look,
            keyring,
            entrance,
            on_ready=lambda: on_ready(overview, link),
            on_stop=lambda: on_stop(staff, settings.stop_grace_s),
            office=_office(staff, settings, door.address),
        )


async def _start(staff: Staff, stack: AsyncExitStack) -> None:
    """Have everyone at work, each after those whom they need; `stack` stops them the other way round."""
    await staff.memory.open()
    # Before runs go on that use them, and stopped after those.
    if staff.mcp is not None:
        staff.mcp.start()
        stack.push_async_callback(staff.mcp.stop)
    # Whoever asks first already sees what a crash cut off, and that it was.
    await staff.engine.start()
    stack.push_async_callback(staff.memory.stop, 0.0)
    stack.push_async_callback(staff.engine.stop, 0.0)
    await staff.memory.start()
    await staff.channels.start()
    stack.push_async_callback(staff.channels.stop, 0.0)


async def _look(store: Store, staff: Staff, settings: Settings) -> Overview:
    totals = await store.totals()
    return Overview(
        settings.data, settings.durability, totals.sessions, totals.events, totals.store_bytes,
        staff.model.name, staff.model.why, await staff.model.takes(),
        staff.confinement, staff.unprotected, staff.memory.described, _problems(staff),
        *await staff.model.mains_own(),
    )  # fmt: skip


def _problems(staff: Staff) -> tuple[str, ...]:
    """What is wrong with what people set up, in sentences."""
    servers = staff.mcp.told() if staff.mcp is not None else ()
    lost = [
        f"The MCP server {each.name} is not connected: {each.last_error}."
        for each in servers
        if each.last_error
    ]
    return (*staff.models.problems(), *staff.agents.problems(), *lost)


def _office(staff: Staff, settings: Settings, address: str) -> Office:
    addresses = (settings.public_url, address) if settings.public_url else (address,)
    now = SystemClock().now_ms()
    return Office(
        staff.settings, staff.models, staff.backups, staff.channels, addresses, now, staff.memory.desk,
        agents=staff.agents, mcp=staff.mcp if staff.mcp is not None else NoMcp(), local=staff.local,
    )  # fmt: skip


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def end_work(staff: Staff, grace_s: float, say: Callable[[str], None] = lambda line: None) -> None:
    """Let what is under way reach the end of a step; what that leaves of the time is for memory."""
    loop = asyncio.get_running_loop()
    until = loop.time() + grace_s
    await staff.channels.stop(grace_s)
    await staff.engine.stop(max(0.0, until - loop.time()))
    saying = loop.call_later(SAY_AFTER_S, say, "Remembering what was said. Ctrl+C again stops at once.")
    try:
        await staff.memory.stop(max(0.0, until - loop.time()))
    finally:
        saying.cancel()


async def _sweep_for_ever(store: Store, folder: Path) -> None:
    """Keep the data folder small. Report a fault and go on: the next sweep does what this one left."""
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await sweep(store, folder)
        except (HoldfastError, OSError) as error:
            advice = error.advice if isinstance(error, HoldfastError) else ""
            print(f"holdfast: {error} {advice}".rstrip(), file=sys.stderr)
