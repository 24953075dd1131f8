"""`holdfast backup`: copy every conversation into one file, also while a server runs."""

import asyncio
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.cli.command_context import (
    CommandContext,
    ForceOption,
    JsonOption,
    print_json,
    print_stderr,
    run_command,
)
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.files import check_target, write_error
from holdfast.cli.format import format_count
from holdfast.cli.progress import ProgressBar
from holdfast.status import format_bytes
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
LEFT_OUT_LINES_MAX = 10
"""The most left-out files that the command names."""


class BackupResult(msgspec.Struct, frozen=True):
    """The written backup; `left_out` says which files are not in it, and why."""

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

    async def write_backup(command: CommandContext) -> BackupResult:
        check_target(path, force, command.settings.data)
        left_out: Sequence[str] = ()
        async with command.store() as store:
            with ProgressBar("Copying", shown=not as_json) as bar:
                if workspaces:
                    left_out = await _back_up_with_workspaces(store, path, command.settings.data, bar)
                else:
                    await store.backup(path, bar)
        restore_command = ["holdfast", "restore", str(path.resolve())]
        if "data" in command.settings.given:
            restore_command += ["--data", str(command.settings.data)]
        return BackupResult(str(path), path.stat().st_size, shlex.join(restore_command), left_out)

    result = run_command(context, write_backup, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(result)
        return
    what = "every conversation and its files" if workspaces else "every conversation"
    print(f"Copied {what} to {result.file} ({format_bytes(result.bytes)}).")
    print(f"To go back to it, with no server running: {result.restore}")
    note_left_out(result.left_out)


async def _back_up_with_workspaces(store: Store, path: Path, data: Path, bar: ProgressBar) -> Sequence[str]:
    """Copy the store, then the workspaces, so that no file is older than a conversation that mentions it."""
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name[:100]}.", dir=path.parent) as folder:
            copy = Path(folder, archive.STORE)
            await store.backup(copy, bar)
            bar.start_phase("Copying files")
            return await asyncio.to_thread(archive.pack, path, copy, data / archive.WORKSPACES, bar)
    except OSError as error:
        raise write_error(error, path) from error


def note_left_out(lines: Sequence[str]) -> None:
    """Say which files a backup or a restore left out."""
    if lines:
        print_stderr(f"{format_count(len(lines), 'file or link', 'files and links')} left out or cut short:")
    for line in lines[:LEFT_OUT_LINES_MAX]:
        print_stderr(f"  {line}")
    if len(lines) > LEFT_OUT_LINES_MAX:
        print_stderr(f"  and {len(lines) - LEFT_OUT_LINES_MAX:,} more; --json names them all")
