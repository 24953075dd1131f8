"""The commands of `holdfast sessions`, put together."""

import typer

from holdfast.cli.sessions.deleting import delete
from holdfast.cli.sessions.exporting import export
from holdfast.cli.sessions.importing import import_files
from holdfast.cli.sessions.listing import list_sessions
from holdfast.cli.sessions.searching import search
from holdfast.cli.sessions.showing import show


def sessions() -> typer.Typer:
    app = typer.Typer(
        no_args_is_help=True, help="List, search, show, export, import and delete conversations."
    )
    app.command("list")(list_sessions)
    app.command("search")(search)
    app.command("show")(show)
    app.command("export")(export)
    app.command("import")(import_files)
    app.command("delete")(delete)
    return app
