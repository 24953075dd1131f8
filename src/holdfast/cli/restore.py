"""`holdfast restore`: replace the data with a backup."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.backup import note_left_out
from holdfast.cli.command_context import CommandContext, JsonOption, YesOption, print_json, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.progress import ProgressBar

SourceArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `holdfast backup` wrote.")]


class RestoreResult(msgspec.Struct, frozen=True):
    """The restored backup, with the path of the old store (`kept`) and of its files (`kept_workspaces`).

    `left_out` says which files of the backup were not restored, and why.
    """

    file: str
    data: str
    kept: str | None
    kept_workspaces: str | None
    left_out: Sequence[str] = ()


def restore(
    context: typer.Context,
    file: SourceArgument,
    yes: YesOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Put a backup in place of everything that is here. What was here is kept aside.

    A backup without files leaves the files of conversations as they are.
    """
    settings: dict[str, Any] = {"as_json": as_json, "data": data, "durability": durability}
    path = file.absolute()

    async def find_store(command: CommandContext) -> Path | None:
        return command.settings.data if command.has_store else None

    async def restore_backup(command: CommandContext) -> RestoreResult:
        folder = command.settings.data
        with ProgressBar("Restoring", shown=not as_json) as bar:
            # In a thread: Ctrl-C stops it at its next step, unless the store is already replaced.
            replaced = await asyncio.to_thread(command.dependencies.data_dir.restore, folder, path, bar)
        kept, files = (str(old) if old else None for old in (replaced.store, replaced.workspaces))
        return RestoreResult(str(path), str(folder), kept, files, replaced.left_out)

    occupied_folder = run_command(context, find_store, **settings)
    if occupied_folder is not None and not yes:
        question = f"Put {path} in place of everything in {occupied_folder}? What is there is kept aside."
        typer.confirm(question, abort=True, err=True)
    result = run_command(context, restore_backup, **settings)
    if as_json:
        print_json(result)
        return
    print(f"Restored {result.file} to {result.data}.")
    if result.kept is not None:
        print(f"What was there before is in {result.kept}.")
    if result.kept_workspaces is not None:
        print(f"The files that were there before are in {result.kept_workspaces}.")
    note_left_out(result.left_out)
