"""`holdfast backup`: one file with every conversation, made while everything runs."""

import asyncio
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.command_context import Desk, ForceOption, JsonOption, carry_out, give, note
from holdfast.cli.files import as_problem, check_target
from holdfast.cli.format import counted
from holdfast.cli.progress import Bar
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.status import in_bytes
from holdfast.store import archive
from holdfast.store.ports import Store

TargetArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")]
WorkspacesOption = Annotated[
    bool,
    typer.Option(
        "--workspaces",
        help="Copy the files in the conversations' own folders too. FILE is then a tar file with everything.",
    ),
]
LINES_MAX = 10
"""The most left-out files that the command names."""


class Copied(msgspec.Struct, frozen=True):
    """`left_out` says which files are not in it, and why."""

    file: str
    bytes: int
    restore: str
    left_out: Sequence[str] = ()


def backup(
    context: typer.Context,
    file: TargetArgument,
    workspaces: WorkspacesOption = False,
    force: ForceOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Copy every conversation into one file, also while a server runs.

    Settings, agents and keys are not in it, nor are files in folders that you chose yourself.
    """
    path = file.absolute()

    async def copy(desk: Desk) -> Copied:
        check_target(path, force, desk.settings.data)
        left_out: Sequence[str] = ()
        async with desk.store() as store:
            with Bar("Copying", shown=not as_json) as bar:
                if workspaces:
                    left_out = await _copy_all(store, path, desk.settings.data, bar)
                else:
                    await store.backup(path, bar)
        words = ["holdfast", "restore", str(path.resolve())]
        if "data" in desk.settings.given:
            words += ["--data", str(desk.settings.data)]
        return Copied(str(path), path.stat().st_size, shlex.join(words), left_out)

    done = carry_out(context, copy, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(done)
        return
    what = "every conversation and its files" if workspaces else "every conversation"
    print(f"Copied {what} to {done.file} ({in_bytes(done.bytes)}).")
    print(f"To go back to it, with no server running: {done.restore}")
    note_left_out(done.left_out)


async def _copy_all(store: Store, path: Path, data: Path, bar: Bar) -> Sequence[str]:
    """Copy the store before the workspaces: no file is then older than the conversation that mentions it."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name[:100]}.", dir=path.parent) as folder:
            copy = Path(folder, archive.STORE)
            await store.backup(copy, bar)
            bar.now("Copying files")
            return await asyncio.to_thread(archive.pack, path, copy, data / archive.WORKSPACES, bar)
    except OSError as error:
        raise as_problem(error, path) from error


def note_left_out(lines: Sequence[str]) -> None:
    """Say which files a backup or a restore left out."""
    if lines:
        note(f"{counted(len(lines), 'file or link', 'files and links')} left out or cut short:")
    for line in lines[:LINES_MAX]:
        note(f"  {line}")
    if len(lines) > LINES_MAX:
        note(f"  and {len(lines) - LINES_MAX:,} more; --json names them all")
