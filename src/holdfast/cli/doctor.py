"""`holdfast doctor`: check everything that is stored, and repair what can be rebuilt."""

import os
import platform
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from holdfast import __version__
from holdfast.cli.command_context import (
    CommandContext,
    CommandProblem,
    JsonOption,
    output_console,
    print_json,
    print_stderr,
    problem_from,
    run_command,
)
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.format import format_count
from holdfast.cli.progress import ProgressBar
from holdfast.domain.errors import HoldfastError
from holdfast.engine.workspaces import sweep
from holdfast.status import format_bytes
from holdfast.store.maintenance import StoreFinding, SweepResult
from holdfast.store.ports import StoreTotals

RebuildOption = Annotated[
    bool, typer.Option("--rebuild", help="Repair what can be rebuilt from the conversations' own records.")
]


class DoctorEnvironment(msgspec.Struct, frozen=True):
    """The versions, the system and the disk that the store runs on."""

    version: str
    python: str
    engine: str
    system: str
    data: str
    durability: str
    free_bytes: int
    other_processes: int = 0


class ReportedFinding(msgspec.Struct, frozen=True):
    where: str
    what: str
    repaired: bool


class FreedSpace(msgspec.Struct, frozen=True):
    """The number of unneeded items that were removed, and their size."""

    fragments: int
    conversations: int
    files: int
    bytes: int


class DoctorReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a check. `problem` is the reason that the store could not be checked."""

    surroundings: DoctorEnvironment
    ok: bool
    holds: StoreTotals | None = None
    found: tuple[ReportedFinding, ...] | None = None
    freed: FreedSpace | None = None
    problem: CommandProblem | None = None


def doctor(
    context: typer.Context,
    rebuild: RebuildOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Check everything that is stored, and say what is wrong. Works beside a running server."""

    async def check_store(command: CommandContext) -> DoctorReport:
        report = DoctorReport(_environment(command), ok=False)
        try:
            if not command.has_store:
                return replace(report, ok=True)
            others = command.dependencies.data_dir.count_other_processes(command.settings.data)
            report = replace(report, surroundings=replace(report.surroundings, other_processes=others))
            return await _examine(command, report, rebuild)
        except HoldfastError as error:
            return replace(report, problem=problem_from(error))

    report = run_command(context, check_store, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(report)
    else:
        _print_report(report, rebuild)
    if not report.ok:
        raise typer.Exit(1)


def _environment(command: CommandContext) -> DoctorEnvironment:
    folder = command.settings.data
    return DoctorEnvironment(
        __version__, platform.python_version(), command.dependencies.data_dir.engine,
        f"{platform.system()} {platform.release()}", str(folder), command.settings.durability,
        _free_bytes(folder),
    )  # fmt: skip


def _free_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


async def _examine(command: CommandContext, report: DoctorReport, rebuild: bool) -> DoctorReport:
    with ProgressBar("Checking", shown=not command.as_json) as bar:
        async with command.store() as store:
            found = await store.check(rebuild, bar)
            ok = all(finding.repaired for finding in found)
            bar.start_phase("Giving space back")
            # A damaged store stays as it is: somebody may have to examine it.
            swept = await sweep(store, command.settings.data) if ok else SweepResult()
            totals = await store.totals()
    found = [*found, *_mismatch_findings(swept)]
    return replace(
        report, ok=all(finding.repaired for finding in found), holds=totals,
        found=tuple(ReportedFinding(finding.where, finding.what, finding.repaired) for finding in found),
        freed=FreedSpace(swept.deltas, swept.sessions, swept.blobs, swept.bytes_freed),
    )  # fmt: skip


def _mismatch_findings(swept: SweepResult) -> list[StoreFinding]:
    if not swept.mismatched:
        return []
    what = (
        f"{format_count(swept.mismatched, 'message')} had fragments that do not add up; they were left alone"
    )
    return [StoreFinding("fragments", what)]


def _print_report(report: DoctorReport, rebuild: bool) -> None:
    console = output_console()
    console.print(_environment_table(report))
    console.print()
    if report.problem is not None:
        print_stderr(f"holdfast: {report.problem.detail}")
        if report.problem.remedy:
            print_stderr(report.problem.remedy)
    elif report.holds is None:
        print("There is nothing here yet, so nothing can be wrong with it.")
    else:
        _print_findings(report, report.holds, rebuild)


def _print_findings(report: DoctorReport, holds: StoreTotals, rebuild: bool) -> None:
    archived = f" ({holds.archived:,} of them archived)" if holds.archived else ""
    conversations = format_count(holds.sessions, "conversation") + archived
    print(
        f"Checked: the file, {conversations} with {format_count(holds.events, 'event')}, "
        "and the search index."
    )
    found = report.found or ()
    for finding in found:
        print(f"  {'repaired' if finding.repaired else 'wrong'}: {finding.where}: {finding.what}")
    if report.freed is not None and any(msgspec.structs.astuple(report.freed)):
        print(f"Gave back {format_bytes(report.freed.bytes)} of space{_format_freed(report.freed)}.")
    if report.ok:
        print("Everything is repaired." if found else "All is well.")
    elif not rebuild:
        print_stderr("Run `holdfast doctor --rebuild` to repair what can be rebuilt.")
    else:
        print_stderr("What is left cannot be rebuilt: run `holdfast restore FILE` with your newest backup.")


def _format_freed(freed: FreedSpace) -> str:
    amounts = (
        (freed.fragments, "fragment"),
        (freed.conversations, "deleted conversation"),
        (freed.files, "unused file"),
    )
    removed = ", ".join(format_count(amount, what) for amount, what in amounts if amount)
    return f": removed {removed}" if removed else ""


def _environment_table(report: DoctorReport) -> Table:
    environment = report.surroundings
    lines = [
        (
            "Version",
            f"{environment.version} on Python {environment.python}, {environment.engine}, "
            f"{environment.system}",
        ),
        ("Data folder", environment.data),
        ("Survives", "power loss" if environment.durability == "full" else "a kill, not power loss"),
        ("Free disk", format_bytes(environment.free_bytes)),
    ]
    if report.holds is not None:
        lines.append(
            ("Size on disk", f"{format_bytes(report.holds.store_bytes)}, format {report.holds.format}")
        )
    if environment.other_processes:
        lines.append(
            ("In use by", format_count(environment.other_processes, "other process", "other processes"))
        )
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(Text(label), Text(text))
    return table
