"""`holdfast serve`: open the store, say in one screen what is there, answer until told to stop."""

import asyncio
import gc
import os
import resource
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import typer
import uvloop
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.browser import open_page
from holdfast.cli.desk import note
from holdfast.cli.entry import announced, check_door, check_keys, entrance_of
from holdfast.cli.wiring import (
    DataOption,
    Door,
    DurabilityOption,
    HostOption,
    ModelOption,
    PortOption,
    Staff,
    Wiring,
    wiring_of,
)
from holdfast.config import Settings
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import Ids
from holdfast.engine.keyring import Keyring
from holdfast.engine.workspaces import clear_away
from holdfast.office import NoMcp, Office
from holdfast.overview import COMMANDS, NOT_YET, READY, Overview
from holdfast.store.ports import Store

SWEEP_EVERY_S = 60.0
SAY_AFTER_S = 0.5
"""Nobody has to be told to wait for less."""
LEAVE_S_MAX = 2.0
"""How long the end waits for what does not let itself be stopped: a memory's task or thread, say."""
GC_THRESHOLDS = (20_000, 20, 50)


def serve(
    context: typer.Context,
    host: HostOption = None,
    port: PortOption = None,
    data: DataOption = None,
    durability: DurabilityOption = None,
    model: ModelOption = None,
) -> None:
    """Start the server on this machine, and say what is there."""
    _on_signals(lambda signum, frame: sys.exit(0))
    wiring = wiring_of(context)
    settings = wiring.settings(host=host, port=port, data=data, durability=durability, model=model)
    door = wiring.open_door(settings.host, settings.port, or_next="port" not in settings.given)
    try:
        check_door(settings, door.is_local)
        _allow_many_connections()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, suppress(asyncio.CancelledError):
            attending = attend(wiring, settings, door, _shown(settings), _stop)
            runner.run(_until_told(attending))
        # All is closed: what the interpreter does at its end takes longer than it takes to send a signal.
        _on_signals(signal.SIG_IGN)
    finally:
        door.close()


async def _until_told(serving: Coroutine[Any, Any, None]) -> None:
    """A signal while it starts ends it as one later does. From when the door answers, the door is told."""
    loop, starting = asyncio.get_running_loop(), asyncio.ensure_future(serving)

    def leave(signum: int, frame: object) -> None:
        _on_signals(lambda signum, frame: None)
        loop.call_soon_threadsafe(starting.cancel)

    _on_signals(leave)
    await starting
    _leave_in_time()


def _on_signals(act: Callable[[int, Any], object] | signal.Handlers) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, act)


def _leave_in_time() -> None:
    """All is closed and on disk: nobody's code may keep the process from ending."""
    leaving = threading.Timer(LEAVE_S_MAX, os._exit, (0,))
    leaving.daemon = True
    leaving.start()


async def attend(
    wiring: Wiring,
    settings: Settings,
    door: Door,
    on_ready: Callable[[Overview, str], None],
    on_stop: Callable[[Staff, float], Awaitable[None]],
) -> None:
    """Answer at `door` until told to stop, with all that a server has.

    `on_ready` is told what is there and the link to come in by; `on_stop` has the answers under way end.
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
        sweeper = asyncio.create_task(_sweep_for_ever(store, settings.data))
        stack.push_async_callback(_end, sweeper)

        async def look() -> Overview:
            totals = await store.totals()
            return Overview(
                settings.data, settings.durability, totals.sessions, totals.events, totals.store_bytes,
                staff.model.name, staff.model.why, tuple(sorted(await staff.model.takes())),
                staff.confinement, staff.unprotected, staff.memory.described, _problems(staff),
            )  # fmt: skip

        overview = await look()
        link = await stack.enter_async_context(announced(store, keyring, settings, door.address))
        await door.run(
            staff.engine,
            look,
            keyring,
            entrance,
            on_ready=lambda: on_ready(overview, link),
            on_stop=lambda: on_stop(staff, settings.stop_grace_s),
            office=_office(staff, settings, door.address),
        )


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


def _allow_many_connections() -> None:
    """Every stream is an open file, and the usual limit is a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


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


async def _stop(staff: Staff, grace_s: float) -> None:
    if staff.engine.runner.at_work:
        print("Stopping once answers reach the end of a step. Ctrl+C again stops at once.", flush=True)
    await end_work(staff, grace_s, partial(print, flush=True))
    print("Stopped. What was not finished goes on at the next start.", flush=True)


async def _sweep_for_ever(store: Store, folder: Path) -> None:
    """Keep the store small. A fault is told and passes by itself: the next sweep does what this one left."""
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await store.sweep()
            await clear_away(store, folder)
        except (HoldfastError, OSError) as error:
            advice = error.advice if isinstance(error, HoldfastError) else ""
            print(f"holdfast: {error} {advice}".rstrip(), file=sys.stderr)


def _settle_memory() -> None:
    """What start-up made stays for good: looking through all of it again and again would hold up everyone."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _shown(settings: Settings) -> Callable[[Overview, str], None]:
    def show(overview: Overview, link: str) -> None:
        _settle_memory()
        Console(highlight=False).print(_screen(overview))
        # The link comes last and alone on its line: easy to see, to click and to read by a script.
        print(link, flush=True)
        if settings.open_browser == "auto" and sys.stdout.isatty():
            open_page(link, settings.data)

    return show


def _screen(overview: Overview) -> Panel:
    called = _called()
    commands = tuple((line.replace("holdfast", called, 1), why) for line, why in COMMANDS)
    return Panel(
        Group(
            _table(overview.lines),
            Text("\nIt"),
            _table(tuple(("  +", line) for line in READY), gap=1),
            Text("\nIt cannot yet"),
            _table(tuple(("  -", line) for line in NOT_YET), gap=1),
            Text("\nTry in another terminal"),
            _table(commands),
        ),
        title=f"Holdfast {overview.version}",
        title_align="left",
        padding=(0, 2),
        width=min(Console().width, 100),
    )


def _called() -> str:
    """How this command is called here, so that what the screen proposes works as it stands."""
    own = Path(sys.prefix) / "bin" / "holdfast"
    if shutil.which("holdfast") or not own.exists():
        return "holdfast"
    return shlex.quote(str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own))


def _table(rows: tuple[tuple[str, str], ...], gap: int = 2) -> Table:
    table = Table.grid(padding=(0, gap, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    return table
