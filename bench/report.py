"""Report a bench's result: the table, its reliability, and the figures as JSON."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.machine import OTHERS_CORES_MAX, OtherLoad, describe_machine
from bench.table import ResultLine, print_table, write_json


def report(
    lines: Sequence[ResultLine],
    title: str,
    console: Console,
    other_load: OtherLoad,
    quick: bool,
    path: Path | None,
) -> None:
    """Print the table, marked doubtful if the machine was busy; save the figures at `path`, if given."""
    others = round(other_load.cores(), 2)
    is_doubtful = others > OTHERS_CORES_MAX
    print_table(lines, title, console, doubtful=is_doubtful)
    if is_doubtful:
        console.print(
            f"[red bold]Others kept {others} cores busy: no yes or no here can be believed.[/red bold]"
        )
    if path:
        write_json(lines, {**describe_machine(), "others_cores": others, "quick": quick}, path)
