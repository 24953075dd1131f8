"""`holdfast backup`: one file with every conversation, made while everything runs."""

import shlex
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.bar import Bar
from holdfast.cli.desk import Desk, ForceOption, JsonOption, carry_out, give
from holdfast.cli.files import check_target
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.overview import in_bytes

TargetArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]


class Copied(msgspec.Struct, frozen=True):
    file: str
    bytes: int
    restore: str


def backup(
    context: typer.Context,
    file: TargetArgument,
    force: ForceOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Copy every conversation into one file, also while a server runs. Files in workspaces are not in it."""
    path = file.absolute()

    async def copy(desk: Desk) -> Copied:
        check_target(path, force, desk.settings.data)
        async with desk.store() as store:
            with Bar("Copying", shown=not as_json) as bar:
                await store.backup(path, bar)
        words = ["holdfast", "restore", str(path.resolve())]
        if "data" in desk.settings.given:
            words += ["--data", str(desk.settings.data)]
        return Copied(str(path), path.stat().st_size, shlex.join(words))

    done = carry_out(context, copy, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(done)
        return
    print(f"Copied every conversation to {done.file} ({in_bytes(done.bytes)}).")
    print(f"To go back to it, with no server running: {done.restore}")
