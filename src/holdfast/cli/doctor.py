"""`holdfast doctor`: prove that everything stored is whole, and mend what can be mended."""

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
from holdfast.cli.command_context import Desk, JsonOption, Problem, carry_out, give, note, problem, screen
from holdfast.cli.format import counted
from holdfast.cli.progress import Bar
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.errors import HoldfastError
from holdfast.engine.workspaces import sweep
from holdfast.status import in_bytes
from holdfast.store.ports import Finding, Swept, Totals

RebuildOption = Annotated[
    bool, typer.Option("--rebuild", help="Repair what can be rebuilt from the conversations' own records.")
]


class Surroundings(msgspec.Struct, frozen=True):
    """What the store stands on."""

    version: str
    python: str
    engine: str
    system: str
    data: str
    durability: str
    free_bytes: int
    other_processes: int = 0


class Found(msgspec.Struct, frozen=True):
    where: str
    what: str
    repaired: bool


class Freed(msgspec.Struct, frozen=True):
    """What was removed because nothing needs it any more."""

    fragments: int
    conversations: int
    files: int
    bytes: int


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that doctor has to say. `problem` is why the store could not be checked."""

    surroundings: Surroundings
    ok: bool
    holds: Totals | None = None
    found: tuple[Found, ...] | None = None
    freed: Freed | None = None
    problem: Problem | None = None


def doctor(
    context: typer.Context,
    rebuild: RebuildOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Check everything that is stored, and say what is wrong. Works beside a running server."""

    async def examine(desk: Desk) -> Report:
        report = Report(_surroundings(desk), ok=False)
        try:
            if not desk.has_store:
                return replace(report, ok=True)
            others = desk.wiring.premises.others(desk.settings.data)
            report = replace(report, surroundings=replace(report.surroundings, other_processes=others))
            return await _examine(desk, report, rebuild)
        except HoldfastError as error:
            return replace(report, problem=problem(error))

    report = carry_out(context, examine, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(report)
    else:
        _tell(report, rebuild)
    if not report.ok:
        raise typer.Exit(1)


def _surroundings(desk: Desk) -> Surroundings:
    folder = desk.settings.data
    return Surroundings(
        __version__, platform.python_version(), desk.wiring.premises.engine,
        f"{platform.system()} {platform.release()}", str(folder), desk.settings.durability,
        _free_bytes(folder),
    )  # fmt: skip


def _free_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


async def _examine(desk: Desk, report: Report, rebuild: bool) -> Report:
    with Bar("Checking", shown=not desk.as_json) as bar:
        async with desk.store() as store:
            found = await store.check(rebuild, bar)
            ok = all(finding.mended for finding in found)
            bar.now("Giving space back")
            # Nothing is removed from a store that may have to be looked at.
            swept = await sweep(store, desk.settings.data) if ok else Swept()
            totals = await store.totals()
    found = [*found, *_left_alone(swept)]
    return replace(
        report, ok=all(finding.mended for finding in found), holds=totals,
        found=tuple(Found(finding.where, finding.what, finding.mended) for finding in found),
        freed=Freed(swept.deltas, swept.sessions, swept.blobs, swept.bytes_freed),
    )  # fmt: skip


def _left_alone(swept: Swept) -> list[Finding]:
    if not swept.mismatched:
        return []
    what = f"{counted(swept.mismatched, 'message')} had fragments that do not add up; they were left alone"
    return [Finding("fragments", what)]


def _tell(report: Report, rebuild: bool) -> None:
    console = screen()
    console.print(_table(report))
    console.print()
    if report.problem is not None:
        note(f"holdfast: {report.problem.detail}")
        if report.problem.remedy:
            note(report.problem.remedy)
    elif report.holds is None:
        print("There is nothing here yet, so nothing can be wrong with it.")
    else:
        _tell_findings(report, report.holds, rebuild)


def _tell_findings(report: Report, holds: Totals, rebuild: bool) -> None:
    archived = f" ({holds.archived:,} of them archived)" if holds.archived else ""
    conversations = counted(holds.sessions, "conversation") + archived
    print(f"Checked: the file, {conversations} with {counted(holds.events, 'event')}, and the search index.")
    found = report.found or ()
    for finding in found:
        print(f"  {'repaired' if finding.repaired else 'wrong'}: {finding.where}: {finding.what}")
    if report.freed is not None and any(msgspec.structs.astuple(report.freed)):
        print(f"Gave back {in_bytes(report.freed.bytes)} of space{_freed(report.freed)}.")
    if report.ok:
        print("Everything is repaired." if found else "All is well.")
    elif not rebuild:
        note("Run `holdfast doctor --rebuild` to repair what can be rebuilt.")
    else:
        note("What is left cannot be rebuilt: run `holdfast restore FILE` with your newest backup.")


def _freed(freed: Freed) -> str:
    amounts = (
        (freed.fragments, "fragment"),
        (freed.conversations, "deleted conversation"),
        (freed.files, "unused file"),
    )
    removed = ", ".join(counted(amount, what) for amount, what in amounts if amount)
    return f": removed {removed}" if removed else ""


def _table(report: Report) -> Table:
    around = report.surroundings
    lines = [
        ("Version", f"{around.version} on Python {around.python}, {around.engine}, {around.system}"),
        ("Data folder", around.data),
        ("Survives", "power loss" if around.durability == "full" else "a kill, not power loss"),
        ("Free disk", in_bytes(around.free_bytes)),
    ]
    if report.holds is not None:
        lines.append(("Size on disk", f"{in_bytes(report.holds.store_bytes)}, format {report.holds.format}"))
    if around.other_processes:
        lines.append(("In use by", counted(around.other_processes, "other process", "other processes")))
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in lines:
        table.add_row(Text(label), Text(text))
    return table
