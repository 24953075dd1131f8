"""`holdfast local`: install, show and remove the model that runs on this machine."""

import sys

import typer

from holdfast.cli.command_context import CommandContext, JsonOption, print_json, print_stderr, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.progress import ProgressBar
from holdfast.domain.transcript.labels import strip_control_chars
from holdfast.models.local.info import LocalModelInfo

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

    async def download(command: CommandContext) -> LocalModelInfo:
        local = command.dependencies.local(command.settings)
        if not as_json:
            print_stderr(f"Installing {local.info().name}: about {local.info().total_bytes // _MB} MB.")
        with _DownloadProgress(shown=not as_json) as progress:
            await local.install(progress)
        return local.info()

    info = run_command(context, download, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(info)
        return
    print(f"{info.name} is installed. {info.about}")
    print("To have it answer: HOLDFAST_MODEL=local holdfast serve, or choose it in the settings of the page.")


def show(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Say whether it is installed."""

    async def load(command: CommandContext) -> LocalModelInfo:
        return command.dependencies.local(command.settings).info()

    info = run_command(context, load, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(info)
    elif info.state != "installed":
        print(f"{info.name} is not installed. `holdfast local install` installs it.")
    else:
        older = "" if info.current else " There is a newer one: `holdfast local install` brings it."
        print(f"{info.name} is installed.{older} {strip_control_chars(info.about)}")


def remove(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Remove it from the data folder."""

    async def remove_files(command: CommandContext) -> bool:
        return await command.dependencies.local(command.settings).remove()

    was_there = run_command(context, remove_files, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(was_there)
    else:
        print("The local model is removed." if was_there else "The local model was not installed.")


class _DownloadProgress(ProgressBar):
    """A progress bar in a terminal; elsewhere a line for each quarter, so that a log shows progress."""

    def __init__(self, shown: bool) -> None:
        super().__init__("Downloading", shown)
        self._prints_lines = shown and not sys.stderr.isatty()
        self._quarter = 0

    def __call__(self, done: int, total: int) -> None:
        super().__call__(done, total)
        self.set_label(f"Downloading, {done // _MB} of about {total // _MB} MB")
        if self._prints_lines and done * 4 // total > self._quarter:
            self._quarter = done * 4 // total
            print_stderr(f"{done // _MB} of about {total // _MB} MB")
