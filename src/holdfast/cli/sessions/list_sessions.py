"""`holdfast sessions list`: what is there, the most recently used first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli.command_context import Desk, JsonOption, carry_out, give, note, screen
from holdfast.cli.format import age
from holdfast.cli.sessions.find import listed, openings
from holdfast.cli.tables import bare_table
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.ids import SessionId
from holdfast.domain.state.rows import SessionRow, SessionStatus
from holdfast.domain.transcript.labels import STATUS, title_of
from holdfast.store.ports import Snapshot

Openings = Mapping[SessionId, str]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="How many to list; 0 lists all.")
]
ArchivedOption = Annotated[bool, typer.Option("--archived", help="List the archived ones instead.")]


class Listed(msgspec.Struct, frozen=True):
    """A conversation as programs read it. Times are milliseconds since 1970."""

    id: str
    title: str
    status: SessionStatus
    turns: int
    created_at: Instant
    updated_at: Instant
    archived: bool
    agent: str
    model: str
    workspace: str
    opening: str = ""
    """How the first message in it begins, where it has no title."""


def summary(row: SessionRow, opening: str = "") -> Listed:
    return Listed(
        row.id, row.title, row.status, row.live_turns, row.created_at, row.updated_at, row.archived,
        row.agent, row.model, row.workspace, opening,
    )  # fmt: skip


def list_sessions(
    context: typer.Context,
    limit: LimitOption = 50,
    archived: ArchivedOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List conversations, the most recently used first."""

    def read(snapshot: Snapshot) -> tuple[list[SessionRow], Openings]:
        # One more than is shown, to know whether there are more.
        rows = list(listed(snapshot, archived, limit and limit + 1))
        return rows, openings(snapshot, rows)

    async def look(desk: Desk) -> tuple[list[SessionRow], Openings, Path]:
        if not desk.has_store:
            return [], {}, desk.settings.data
        async with desk.store() as store:
            return *await store.snapshot(read), desk.settings.data

    rows, begun, folder = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    shown = rows[:limit] if limit else rows
    if as_json:
        give([summary(row, begun.get(row.id, "")) for row in shown])
    elif shown:
        screen().print(_table(shown, begun))
    else:
        print(f"There are no {'archived ' if archived else ''}conversations in {folder} yet.")
    if len(shown) < len(rows) and not as_json:
        note(f"There are more: --limit {limit * 2} shows {limit * 2}, --limit 0 shows all.")


def _table(rows: list[SessionRow], begun: Openings) -> Table:
    table = bare_table()
    table.add_column("Conversation", no_wrap=True)
    table.add_column("Title", overflow="ellipsis", no_wrap=True)
    table.add_column("Status")
    table.add_column("Turns", justify="right")
    table.add_column("Last used", no_wrap=True)
    now = SystemClock().now_ms()
    for row in rows:
        table.add_row(
            row.id,
            Text(title_of(row.title, begun.get(row.id, "")), style="" if row.title else "dim"),
            STATUS[row.status],
            f"{row.live_turns:,}",
            age(now - row.updated_at),
        )
    return table
