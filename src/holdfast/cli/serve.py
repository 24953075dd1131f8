"""`holdfast serve`: open the store, say in one screen what is there, answer until told to stop."""

import asyncio
import gc
import resource
import shlex
import shutil
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import typer
import uvloop
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

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
from holdfast.domain.errors import HoldfastError
from holdfast.engine.workspaces import clear_away
from holdfast.overview import COMMANDS, NOT_YET, READY, Overview
from holdfast.store.ports import Store

SWEEP_EVERY_S = 60.0
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
    wiring = wiring_of(context)
    settings = wiring.settings(host=host, port=port, data=data, durability=durability, model=model)
    door = wiring.open_door(settings.host, settings.port, or_next="port" not in settings.given)
    _allow_many_connections()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(wiring, settings, door))
    finally:
        door.close()


async def _serve(wiring: Wiring, settings: Settings, door: Door) -> None:
    async with AsyncExitStack() as stack:
        store = await wiring.open_store(settings.data, durability=settings.durability)
        stack.push_async_callback(store.close)
        staff = await wiring.hire(store, settings)
        stack.push_async_callback(staff.dismiss)
        # Whoever asks first already sees what a crash cut off, and that it was.
        await staff.engine.start()
        stack.push_async_callback(staff.engine.stop, 0.0)
        sweeper = asyncio.create_task(_sweep_for_ever(store, settings.data))
        stack.push_async_callback(_end, sweeper)

        async def look() -> Overview:
            totals = await store.totals()
            return Overview(
                settings.data, settings.durability, totals.sessions, totals.events, totals.store_bytes,
                staff.model, staff.why,
            )  # fmt: skip

        screen = _screen(await look())
        await door.run(
            staff.engine,
            look,
            on_ready=lambda: _show(screen, door.address),
            on_stop=lambda: _stop(staff, settings.stop_grace_s),
        )


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _allow_many_connections() -> None:
    """Every stream is an open file, and the usual limit is a thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _stop(staff: Staff, grace_s: float) -> None:
    if staff.engine.runner.at_work:
        print("Stopping once answers reach the end of a step. Ctrl+C again stops at once.", flush=True)
    await staff.engine.stop(grace_s)
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


def _show(screen: Panel, address: str) -> None:
    _settle_memory()
    Console(highlight=False).print(screen)
    # The address comes last and alone on its line: easy to see, to click and to read by a script.
    print(address, flush=True)


def _screen(overview: Overview) -> Panel:
    called = _called()
    commands = tuple((line.replace("holdfast", called, 1), why) for line, why in COMMANDS)
    return Panel(
        Group(
            _table(overview.lines),
            Text("\nIt"),
            *(Text(f"  + {line}") for line in READY),
            Text("\nIt cannot yet"),
            *(Text(f"  - {line}") for line in NOT_YET),
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


def _table(rows: tuple[tuple[str, str], ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    return table
