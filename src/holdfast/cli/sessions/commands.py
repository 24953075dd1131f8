"""`holdfast sessions`: the group of its commands."""

import typer

from holdfast.cli.sessions.delete import delete
from holdfast.cli.sessions.export import export
from holdfast.cli.sessions.import_files import import_files
from holdfast.cli.sessions.list_sessions import list_sessions
from holdfast.cli.sessions.search import search
from holdfast.cli.sessions.show import show


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
