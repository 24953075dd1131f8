"""What `holdfast serve` shows when it is ready: what is there, and what to try."""

import shlex
import shutil
import sys
from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.status import COMMANDS, Overview


def start_screen(overview: Overview) -> Panel:
    called = _called()
    commands = tuple((line.replace("holdfast", called, 1), why) for line, why in COMMANDS)
    return Panel(
        Group(
            _table(overview.lines),
            Text("\nIn another terminal"),
            _table(commands),
        ),
        title=f"Holdfast {overview.version}",
        title_align="left",
        padding=(0, 2),
        width=min(Console().width, 100),
    )


def _called() -> str:
    """How this command is called here, so that what the screen proposes works as it stands."""
    own = Path(sys.prefix) / "bin" / "holdfast"
    if shutil.which("holdfast") or not own.exists():
        return "holdfast"
    return shlex.quote(str(own.relative_to(Path.cwd()) if own.is_relative_to(Path.cwd()) else own))


def _table(rows: tuple[tuple[str, str], ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in rows:
        table.add_row(Text(label), Text(text))
    return table
