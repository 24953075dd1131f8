"""The composition root: the only module that knows which parts are real, and puts them together."""

import os
import sys
from collections.abc import Mapping
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli.backup import backup
from holdfast.cli.doctor import doctor
from holdfast.cli.restore import restore
from holdfast.cli.serve import serve
from holdfast.cli.sessions.commands import sessions
from holdfast.cli.wiring import Wiring
from holdfast.domain.errors import HoldfastError
from holdfast.server.door import HttpDoor
from holdfast.store.sqlite.premises import SqlitePremises
from holdfast.store.sqlite.store import SqliteStore


def main() -> None:
    """Run the command line. An error of ours is told in a sentence and what to do about it; exit code 1."""
    try:
        command_line(wire(os.environ))()
    except HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        if error.advice:
            print(error.advice, file=sys.stderr)
        sys.exit(1)


def wire(environ: Mapping[str, str]) -> Wiring:
    """The real parts."""
    return Wiring(SqliteStore.open, HttpDoor.open, SqlitePremises(), environ)


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
