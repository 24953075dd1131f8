"""The composition root: the only module that knows which parts are real, and puts them together."""

import errno
import os
import sys
from collections.abc import Mapping
from random import random
from typing import Annotated, NoReturn

import typer

from holdfast import __version__
from holdfast.agent.asking import Asking
from holdfast.agent.calls import Calls
from holdfast.agent.instructions import INSTRUCTIONS, TitleAsker
from holdfast.agent.loop import Agent
from holdfast.agent.models.choose import KEY_VARIABLE, choose
from holdfast.agent.models.demo import Demo
from holdfast.agent.tools.toolbox import builtin_tools, by_name
from holdfast.cli.backup import backup
from holdfast.cli.doctor import doctor
from holdfast.cli.restore import restore
from holdfast.cli.serve import serve
from holdfast.cli.sessions.commands import sessions
from holdfast.cli.wiring import Staff, Wiring
from holdfast.config import Settings
from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import DiskFull, HoldfastError
from holdfast.domain.ids import Ids
from holdfast.engine.engine import Engine
from holdfast.server.door import HttpDoor
from holdfast.store.ports import Store
from holdfast.store.sqlite.premises import SqlitePremises
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.writer import favour_threads


def main() -> None:
    """Run the command line. An error of ours is told in a sentence and what to do about it; exit code 1."""
    favour_threads()
    environ = dict(os.environ)
    # Whatever is started from here on does not inherit it.
    os.environ.pop(KEY_VARIABLE, None)
    try:
        command_line(wire(environ))()
    except HoldfastError as error:
        _fail(error)
    except OSError as error:
        # Whatever else a file can do is told by who opened it; standard output is opened by nobody.
        if error.errno != errno.ENOSPC:
            raise
        _fail(DiskFull(path="this command's output"))


def _fail(error: HoldfastError) -> NoReturn:
    print(f"holdfast: {error}", file=sys.stderr)
    if error.advice:
        print(error.advice, file=sys.stderr)
    sys.exit(1)


def wire(environ: Mapping[str, str]) -> Wiring:
    """The real parts."""

    async def hire(store: Store, settings: Settings) -> Staff:
        return await _hire(store, settings, environ)

    return Wiring(SqliteStore.open, HttpDoor.open, SqlitePremises(), hire, environ)


async def _hire(store: Store, settings: Settings, environ: Mapping[str, str]) -> Staff:
    clock = SystemClock()
    ids = Ids(clock)
    model, why = await choose(settings.model, environ)
    tools = by_name(builtin_tools(settings.data, environ))
    asking, calls = Asking(clock, ids, tools, random), Calls(tools, settings.approvals, clock)
    agent = Agent(INSTRUCTIONS, model, tools, asking, calls)
    ask_title = None if isinstance(model, Demo) else TitleAsker(model)
    engine = Engine(store, clock, ids, lambda session: agent, settings.data, settings.resume, ask_title)
    return Staff(engine, model.name, why, model.close)


def command_line(wiring: Wiring) -> typer.Typer:
    """Every command, each from its own file in `cli`, over the parts in `wiring`."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

    @app.callback(help="A self-hosted agent server that never loses a turn.")
    def root(
        context: typer.Context,
        version: Annotated[
            bool, typer.Option("--version", help="Say the version.", callback=_say_version, is_eager=True)
        ] = False,
    ) -> None:
        context.obj = wiring

    for command in (serve, doctor, backup, restore):
        app.command()(command)
    app.add_typer(sessions(), name="sessions")
    return app


def _say_version(asked: bool) -> None:
    if asked:
        print(f"holdfast {__version__}")
        raise typer.Exit
