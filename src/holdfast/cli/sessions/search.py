"""`holdfast sessions search`: find conversations by the text of their messages."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli.command_context import CommandContext, JsonOption, print_stderr, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.format import format_age
from holdfast.cli.sessions.find import find_openings
from holdfast.cli.sessions.list_sessions import SessionSummary, summarise_session
from holdfast.cli.tables import make_bare_table, print_list
from holdfast.domain.clock import Instant, SystemClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import SEARCH_HITS_MAX
from holdfast.domain.transcript.labels import display_title, strip_control_chars
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


class SearchMatch(msgspec.Struct, frozen=True):
    """A matching message. `marks` are the [start, end) ranges of the found words in `snippet`."""

    message_id: str
    role: str
    at: Instant
    snippet: str
    marks: tuple[tuple[int, int], ...]


class MatchingSession(SessionSummary, frozen=True):
    """A conversation with its matching messages, newest first."""

    matches: tuple[SearchMatch, ...] = ()


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

    async def run_search(command: CommandContext) -> tuple[list[MatchingSession], bool]:
        if not command.has_store:
            return [], False
        async with command.store() as store:
            return await store.snapshot(
                lambda snapshot: _matching_sessions(snapshot, query, limit), needs_search=True
            )

    found, is_more = run_command(context, run_search, as_json=as_json, data=data, durability=durability)
    print_list(found, as_json, _matches_table, f"No message contains “{strip_control_chars(query)}”.")
    if is_more and not as_json:
        print_stderr(f"These are the newest {limit} messages that match; there may be more.")


def _matching_sessions(snapshot: Snapshot, query: str, limit: int) -> tuple[list[MatchingSession], bool]:
    """Return the conversations with matches, newest match first, and whether there may be more."""
    hits = snapshot.search(query, limit)
    matches: dict[SessionId, list[SearchMatch]] = {}
    for hit in hits:
        match = SearchMatch(hit.message_id, hit.role, hit.at, hit.snippet, hit.marks)
        matches.setdefault(hit.session_id, []).append(match)
    rows = [snapshot.session(session_id) for session_id in matches]
    opening = find_openings(snapshot, rows)
    found = [
        MatchingSession(
            **msgspec.structs.asdict(summarise_session(row, opening.get(row.id, ""))),
            matches=tuple(matches[row.id]),
        )
        for row in rows
    ]
    return found, len(hits) == limit


def _matches_table(found: list[MatchingSession]) -> Table:
    table = make_bare_table()
    table.add_column("Conversation", no_wrap=True)
    table.add_column("Title", overflow="ellipsis", no_wrap=True, max_width=_TITLE_COLUMNS)
    table.add_column("Last used", no_wrap=True)
    table.add_column("Match", overflow="fold")
    now = SystemClock().now_ms()
    for session in found:
        title = Text(display_title(session.title, session.opening), style="" if session.title else "dim")
        table.add_row(session.id, title, format_age(now - session.updated_at), _snippet_line(session.matches))
    return table


def _snippet_line(matches: tuple[SearchMatch, ...]) -> Text:
    line = Text(strip_control_chars(matches[0].snippet))
    for start, end in matches[0].marks:
        line.stylize("bold", start, end)
    return line.append(f" (and {len(matches) - 1} more)", style="dim") if len(matches) > 1 else line
