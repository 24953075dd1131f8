"""The result table of a bench, and its JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

TIMES = "\N{MULTIPLICATION SIGN}"
YES, NO = "[green]yes[/green]", "[red bold]no[/red bold]"


@dataclass(frozen=True)
class ResultLine:
    """A measurement, its promise and its result. `met` is None without a promise."""

    part: str
    what: str
    measured: str
    limit: str = ""
    peer: str = ""
    ratio: float | None = None
    is_met: bool | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


def info_line(part: str, what: str, measured: str, peer: str = "", ratio: float | None = None) -> ResultLine:
    """Return a row for information, without a promise."""
    return ResultLine(part, what, measured, peer=peer, ratio=ratio)


def ratio_line(
    part: str, what: str, ratio: float, limit: float, measured: str, peer: str, *, or_met: bool = False
) -> ResultLine:
    """Return a row that is met if `ratio` is at most `limit`, or if `or_met` is true."""
    return ResultLine(part, what, measured, f"≤ {limit:g}{TIMES}", peer, ratio, ratio <= limit or or_met)


def latency_line(part: str, what: str, p50_ms: float, p99_ms: float, limit_ms: float) -> ResultLine:
    """Return a row that is met if even the p99 is at most `limit_ms`."""
    measured = f"p50 {ms(p50_ms)}, p99 {ms(p99_ms)}"
    met = p99_ms <= limit_ms
    return ResultLine(part, what, measured, f"≤ {limit_ms:g} ms", "", p99_ms / limit_ms, met)


def ms(value: float) -> str:
    return f"{value:.3f} ms" if value < 10 else f"{value:.1f} ms"


def print_table(lines: Sequence[ResultLine], title: str, console: Console, *, doubtful: bool = False) -> None:
    """Print the table; `doubtful` puts a question mark behind every verdict."""
    yes, no = ("[yellow]yes?[/yellow]", "[yellow]no?[/yellow]") if doubtful else (YES, NO)
    table = Table(title=title, title_justify="left", show_lines=False, pad_edge=False)
    table.add_column("line", overflow="fold", ratio=5)
    table.add_column("limit", no_wrap=True)
    table.add_column("measured", overflow="fold", ratio=4)
    table.add_column("peer, same run", overflow="fold", ratio=4)
    table.add_column("ratio", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    part = ""
    for line in lines:
        if line.part != part:
            part = line.part
            table.add_section()
            table.add_row(f"[bold]{part}[/bold]")
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        met = "" if line.is_met is None else yes if line.is_met else no
        table.add_row(line.what, line.limit, line.measured, line.peer, ratio, met)
    console.print(table)
    promised = [line for line in lines if line.is_met is not None]
    console.print(f"{sum(bool(line.is_met) for line in promised)} of {len(promised)} promised lines met.")


def write_json(lines: Sequence[ResultLine], machine: Mapping[str, object], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {"machine": dict(machine), "lines": [asdict(line) for line in lines]}
    path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
