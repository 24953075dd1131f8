"""`holdfast serve`: print a one-screen summary, open the page, and serve until a signal."""

import asyncio
import gc
import html
import os
import resource
import shlex
import shutil
import signal
import sys
import threading
import webbrowser
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import typer
import uvloop
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.cli.dependencies import (
    App,
    DataOption,
    DurabilityOption,
    HostOption,
    ModelOption,
    PortOption,
    get_dependencies,
)
from holdfast.cli.run_server import run_server, stop_gracefully
from holdfast.cli.server_access import check_access_settings
from holdfast.settings.settings import Settings
from holdfast.status import COMMANDS, ServerStatus

EXIT_TIMEOUT_S = 2.0
"""The longest wait for a task or thread that cannot be stopped, such as a memory provider's."""
GC_THRESHOLDS = (20_000, 20, 50)
PAGE_FILE_NAME = "open.html"


def serve(
    context: typer.Context,
    host: HostOption = None,
    port: PortOption = None,
    data: DataOption = None,
    durability: DurabilityOption = None,
    model: ModelOption = None,
) -> None:
    """Start the server on this machine, and say what is there."""
    _set_signal_handlers(lambda signum, frame: sys.exit(0))
    dependencies = get_dependencies(context)
    settings = dependencies.settings(host=host, port=port, data=data, durability=durability, model=model)
    server = dependencies.open_server(settings.host, settings.port, or_next="port" not in settings.given)
    try:
        check_access_settings(settings, server.is_local)
        _allow_many_connections()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, suppress(asyncio.CancelledError):
            serving = run_server(dependencies, settings, server, _start_screen_printer(settings), _stop)
            runner.run(_run_until_signal(serving))
        # All is closed, but the interpreter takes long enough to exit that a signal could interrupt it.
        _set_signal_handlers(signal.SIG_IGN)
    finally:
        server.close()


async def _run_until_signal(serving: Coroutine[Any, Any, None]) -> None:
    """Run until a signal: cancel the start on an early one; once it serves, the HTTP server handles them."""
    loop, server_task = asyncio.get_running_loop(), asyncio.ensure_future(serving)

    def cancel(signum: int, frame: object) -> None:
        _set_signal_handlers(lambda signum, frame: None)
        loop.call_soon_threadsafe(server_task.cancel)

    _set_signal_handlers(cancel)
    await server_task
    _exit_within_timeout()


def _set_signal_handlers(handler: Callable[[int, Any], object] | signal.Handlers) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, handler)


def _exit_within_timeout() -> None:
    """Exit after a timeout even if some thread is still running: all is closed and on disk."""
    timer = threading.Timer(EXIT_TIMEOUT_S, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _allow_many_connections() -> None:
    """Raise the limit of open files, usually a thousand, because each stream is one."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


async def _stop(app: App, grace_s: float) -> None:
    if app.engine.runner.running:
        print("Stopping once answers reach the end of a step. Ctrl+C again stops at once.", flush=True)
    await stop_gracefully(app, grace_s, partial(print, flush=True))
    print("Stopped. What was not finished goes on at the next start.", flush=True)


def _tune_garbage_collector() -> None:
    """Exclude the objects made at the start from garbage collection, and collect less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _start_screen_printer(settings: Settings) -> Callable[[ServerStatus, str], None]:
    def show(status: ServerStatus, link: str) -> None:
        _tune_garbage_collector()
        Console(highlight=False).print(start_screen(status))
        # The link comes last and alone on its line, so that people see it and scripts can read it.
        print(link, flush=True)
        if settings.open_browser == "auto" and sys.stdout.isatty():
            open_page(link, settings.data)

    return show


_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def open_page(link: str, folder: Path) -> None:
    """Open `link` in a browser without waiting for it.

    The browser gets a file that only its owner can read: every user of the machine can read the arguments of
    a program, and so the code in the link.
    """
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _DISPLAYS):
        return
    path = folder / PAGE_FILE_NAME
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={html.escape(link)}"><title>Holdfast</title>'
        )
    threading.Thread(target=webbrowser.open, args=(path.as_uri(),), daemon=True).start()


def start_screen(status: ServerStatus) -> Panel:
    command_name = _command_name()
    commands = tuple((line.replace("holdfast", command_name, 1), why) for line, why in COMMANDS)
    return Panel(
        Group(
            _table(status.lines),
            Text("\nIn another terminal"),
            _table(commands),
        ),
        title=f"Holdfast {status.version}",
        title_align="left",
        padding=(0, 2),
        width=min(Console().width, 100),
    )


def _command_name() -> str:
    """Return how to call this command here, so that the commands on the screen work as shown."""
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
