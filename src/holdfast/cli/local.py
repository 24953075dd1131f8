"""`holdfast local`: the model that runs on this machine, installed and removed."""

import sys

import typer

from holdfast.cli.command_context import Desk, JsonOption, carry_out, give, note
from holdfast.cli.progress import Bar
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.transcript.labels import clean
from holdfast.models.local.info import LocalTold

_MB = 1_000_000


def local() -> typer.Typer:
    app = typer.Typer(
        no_args_is_help=True, help="Install, show and remove the model that runs on this machine."
    )
    app.command("install")(install)
    app.command("show")(show)
    app.command("remove")(remove)
    return app


def install(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Install it: a small real model that needs no network afterwards. About 127 MB are downloaded."""

    async def fetch(desk: Desk) -> LocalTold:
        local = desk.wiring.local(desk.settings)
        if not as_json:
            note(f"Installing {local.told().name}: about {local.told().total_bytes // _MB} MB.")
        with _Megabytes(shown=not as_json) as progress:
            await local.install(progress)
        return local.told()

    told = carry_out(context, fetch, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(told)
        return
    print(f"{told.name} is installed. {told.about}")
    print("To have it answer: HOLDFAST_MODEL=local holdfast serve, or choose it in the settings of the page.")


def show(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Say whether it is installed."""

    async def look(desk: Desk) -> LocalTold:
        return desk.wiring.local(desk.settings).told()

    told = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(told)
    elif told.state != "installed":
        print(f"{told.name} is not installed. `holdfast local install` installs it.")
    else:
        older = "" if told.current else " There is a newer one: `holdfast local install` brings it."
        print(f"{told.name} is installed.{older} {clean(told.about)}")


def remove(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Remove it from the data folder."""

    async def take(desk: Desk) -> bool:
        return await desk.wiring.local(desk.settings).remove()

    was_there = carry_out(context, take, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(was_there)
    else:
        print("The local model is removed." if was_there else "The local model was not installed.")


class _Megabytes(Bar):
    """The bar in a terminal; elsewhere a line for each quarter, so that a log shows that it goes on."""

    def __init__(self, shown: bool) -> None:
        super().__init__("Downloading", shown)
        self._lines = shown and not sys.stderr.isatty()
        self._quarter = 0

    def __call__(self, done: int, total: int) -> None:
        super().__call__(done, total)
        self.say(f"Downloading, {done // _MB} of about {total // _MB} MB")
        if self._lines and done * 4 // total > self._quarter:
            self._quarter = done * 4 // total
            note(f"{done // _MB} of about {total // _MB} MB")
