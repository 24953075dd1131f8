"""`holdfast restore`: go back to what a backup holds."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.backup import note_left_out
from holdfast.cli.command_context import Desk, JsonOption, YesOption, carry_out, give
from holdfast.cli.progress import Bar
from holdfast.cli.wiring import DataOption, DurabilityOption

SourceArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `holdfast backup` wrote.")]


class Restored(msgspec.Struct, frozen=True):
    """`kept` is where the store that was there before is now, and `kept_workspaces` where the files are.

    `left_out` says which files of the backup were not brought back, and why.
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

    async def look(desk: Desk) -> Path | None:
        return desk.settings.data if desk.has_store else None

    async def put_back(desk: Desk) -> Restored:
        folder = desk.settings.data
        with Bar("Restoring", shown=not as_json) as bar:
            # In a thread: Ctrl-C stops it there at its next step, unless the store is replaced already.
            replaced = await asyncio.to_thread(desk.wiring.premises.restore, folder, path, bar)
        kept, files = (str(each) if each else None for each in (replaced.store, replaced.workspaces))
        return Restored(str(path), str(folder), kept, files, replaced.left_out)

    taken = carry_out(context, look, **settings)
    if taken is not None and not yes:
        question = f"Put {path} in place of everything in {taken}? What is there is kept aside."
        typer.confirm(question, abort=True, err=True)
    done = carry_out(context, put_back, **settings)
    if as_json:
        give(done)
        return
    print(f"Restored {done.file} to {done.data}.")
    if done.kept is not None:
        print(f"What was there before is in {done.kept}.")
    if done.kept_workspaces is not None:
        print(f"The files that were there before are in {done.kept_workspaces}.")
    note_left_out(done.left_out)
