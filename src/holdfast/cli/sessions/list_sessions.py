"""`holdfast sessions list`: list conversations, most recently used first."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli.command_context import (
    CommandContext,
    JsonOption,
    output_console,
    print_json,
    print_stderr,
    run_command,
)
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.format import format_age
from holdfast.cli.sessions.find import find_openings, iter_sessions
from holdfast.cli.tables import make_bare_table
from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.ids import SessionId
from holdfast.domain.state.rows import SessionRow, SessionStatus
from holdfast.domain.transcript.labels import STATUS_LABELS, display_title
from holdfast.store.ports import Snapshot

Openings = Mapping[SessionId, str]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="How many to list; 0 lists all.")
]
ArchivedOption = Annotated[bool, typer.Option("--archived", help="List the archived ones instead.")]


class SessionSummary(msgspec.Struct, frozen=True):
    """A conversation in JSON. Times are milliseconds since 1970."""

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
    """The start of its first message, if it has no title."""


def summarise_session(row: SessionRow, opening: str = "") -> SessionSummary:
    return SessionSummary(
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

    def read_sessions(snapshot: Snapshot) -> tuple[list[SessionRow], Openings]:
        # One more than is printed, to know whether there are more.
        rows = list(iter_sessions(snapshot, archived, limit and limit + 1))
        return rows, find_openings(snapshot, rows)

    async def load_sessions(command: CommandContext) -> tuple[list[SessionRow], Openings, Path]:
        if not command.has_store:
            return [], {}, command.settings.data
        async with command.store() as store:
            return *await store.snapshot(read_sessions), command.settings.data

    rows, opening_texts, folder = run_command(
        context, load_sessions, as_json=as_json, data=data, durability=durability
    )
    listed_rows = rows[:limit] if limit else rows
    if as_json:
        print_json([summarise_session(row, opening_texts.get(row.id, "")) for row in listed_rows])
    elif listed_rows:
        output_console().print(_sessions_table(listed_rows, opening_texts))
    else:
        print(f"There are no {'archived ' if archived else ''}conversations in {folder} yet.")
    if len(listed_rows) < len(rows) and not as_json:
        print_stderr(f"There are more: --limit {limit * 2} shows {limit * 2}, --limit 0 shows all.")


def _sessions_table(rows: list[SessionRow], opening_texts: Openings) -> Table:
    table = make_bare_table()
    table.add_column("Conversation", no_wrap=True)
    table.add_column("Title", overflow="ellipsis", no_wrap=True)
    table.add_column("Status")
    table.add_column("Turns", justify="right")
    table.add_column("Last used", no_wrap=True)
    now = SystemClock().now_ms()
    for row in rows:
        table.add_row(
            row.id,
            Text(display_title(row.title, opening_texts.get(row.id, "")), style="" if row.title else "dim"),
            STATUS_LABELS[row.status],
            f"{row.live_turns:,}",
            format_age(now - row.updated_at),
        )
    return table
