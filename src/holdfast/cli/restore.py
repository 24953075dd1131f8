"""`holdfast restore`: go back to what a backup holds."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.bar import Bar
from holdfast.cli.desk import Desk, JsonOption, YesOption, carry_out, give
from holdfast.cli.wiring import DataOption, DurabilityOption

SourceArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A file that `holdfast backup` wrote.")]


class Restored(msgspec.Struct, frozen=True):
    """`kept` is where what was there before is now."""

    file: str
    data: str
    kept: str | None


def restore(
    context: typer.Context,
    file: SourceArgument,
    yes: YesOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Put a backup in place of everything that is here. What was here is kept aside."""
    settings: dict[str, Any] = {"as_json": as_json, "data": data, "durability": durability}
    path = file.absolute()

    async def look(desk: Desk) -> Path | None:
        return desk.settings.data if desk.has_store else None

    async def put_back(desk: Desk) -> Restored:
        folder = desk.settings.data
        with Bar("Restoring", shown=not as_json) as bar:
            kept = desk.wiring.premises.restore(folder, path, bar)
        return Restored(str(path), str(folder), str(kept) if kept is not None else None)

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
