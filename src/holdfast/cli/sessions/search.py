"""`holdfast sessions search`: find conversations by what was said in them."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli.command_context import Desk, JsonOption, carry_out, note
from holdfast.cli.format import age
from holdfast.cli.sessions.find import openings
from holdfast.cli.sessions.list_sessions import Listed, summary
from holdfast.cli.tables import bare_table, tell_list
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import SEARCH_HITS_MAX
from holdfast.domain.transcript.labels import clean, title_of
from holdfast.store.ports import Snapshot

WordsArgument = Annotated[
    list[str], typer.Argument(metavar="WORDS", help="Words that a message must contain.")
]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        max=SEARCH_HITS_MAX,
        help="How many messages to look at, the newest first.",
    ),
]
_TITLE_COLUMNS = 28


class Match(msgspec.Struct, frozen=True):
    """A message that matches. `marks` are the [start, end) of the words found within `snippet`."""

    message_id: str
    role: str
    at: Instant
    snippet: str
    marks: tuple[tuple[int, int], ...]


class FoundConversation(Listed, frozen=True):
    """A conversation with the messages in it that match, the newest first."""

    matches: tuple[Match, ...] = ()


def search(
    context: typer.Context,
    words: WordsArgument,
    limit: LimitOption = SEARCH_HITS_MAX,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Search all conversations for messages that contain every one of WORDS."""
    query = " ".join(words)

    async def look(desk: Desk) -> tuple[list[FoundConversation], bool]:
        if not desk.has_store:
            return [], False
        async with desk.store() as store:
            return await store.snapshot(lambda snapshot: _found(snapshot, query, limit), searches=True)

    found, is_more = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    tell_list(found, as_json, _table, f"No message contains “{clean(query)}”.")
    if is_more and not as_json:
        note(f"These are the newest {limit} messages that match; there may be more.")


def _found(snapshot: Snapshot, query: str, limit: int) -> tuple[list[FoundConversation], bool]:
    """Return the conversations with matches, the newest match first, and whether there may be more."""
    hits = snapshot.search(query, limit)
    matches: dict[SessionId, list[Match]] = {}
    for hit in hits:
        match = Match(hit.message_id, hit.role, hit.at, hit.snippet, hit.marks)
        matches.setdefault(hit.session_id, []).append(match)
    rows = [snapshot.session(session_id) for session_id in matches]
    opening = openings(snapshot, rows)
    found = [
        FoundConversation(
            **msgspec.structs.asdict(summary(row, opening.get(row.id, ""))), matches=tuple(matches[row.id])
        )
        for row in rows
    ]
    return found, len(hits) == limit


def _table(found: list[FoundConversation]) -> Table:
    table = bare_table()
    table.add_column("Conversation", no_wrap=True)
    table.add_column("Title", overflow="ellipsis", no_wrap=True, max_width=_TITLE_COLUMNS)
    table.add_column("Last used", no_wrap=True)
    table.add_column("Match", overflow="fold")
    now = SystemClock().now_ms()
    for each in found:
        title = Text(title_of(each.title, each.opening), style="" if each.title else "dim")
        table.add_row(each.id, title, age(now - each.updated_at), _line(each.matches))
    return table


def _line(matches: tuple[Match, ...]) -> Text:
    line = Text(clean(matches[0].snippet))
    for start, end in matches[0].marks:
        line.stylize("bold", start, end)
    return line.append(f" (and {len(matches) - 1} more)", style="dim") if len(matches) > 1 else line
