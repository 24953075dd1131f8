"""`holdfast sessions show`: print a conversation in the terminal."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.text import Text as Styled

from holdfast.cli.command_context import CommandContext, JsonOption, output_console, print_json, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.errors import NoStore
from holdfast.cli.format import format_count
from holdfast.cli.markdown_rendering import render_markdown
from holdfast.cli.progress import ProgressBar
from holdfast.cli.sessions.find import FoundSession, IdArgument, find_session, load_transcript
from holdfast.cli.sessions.list_sessions import summarise_session
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events.parts import AnyPart, Change, File, Reasoning, Text, ToolCall
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.labels import (
    EDITED_LABEL,
    REMOVED_LABEL,
    STATUS_LABELS,
    calls_by_id,
    display_title,
    entry_label,
    is_silent,
    speaker,
    strip_control_chars,
    unanswered_calls,
)
from holdfast.domain.transcript.transcript import Entry, Transcript
from holdfast.status import format_bytes


def show(
    context: typer.Context,
    session: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Show a conversation to read."""

    async def load(command: CommandContext) -> tuple[FoundSession, Transcript]:
        try:
            async with command.store() as store:
                found = await store.snapshot(lambda snapshot: find_session(snapshot, session))
                with ProgressBar("Reading", shown=not as_json) as bar:
                    return found, await load_transcript(store, found, bar)
        except NoStore:
            raise NoSuchSession(session_id=session) from None

    found, transcript = run_command(context, load, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(
            msgspec.to_builtins(summarise_session(found.row, found.opening))
            | {"transcript": transcript.turns}
        )
    else:
        _print_transcript(
            output_console(), found.row, display_title(found.row.title, found.opening), transcript
        )


def _print_transcript(console: Console, row: SessionRow, title: str, transcript: Transcript) -> None:
    console.print(Styled(title, style="bold"))
    status = f"{row.id} · {STATUS_LABELS[row.status]} · {format_count(row.live_turns, 'turn')}"
    console.print(Styled(status, style="dim"))
    calls, open_calls = calls_by_id(transcript), unanswered_calls(transcript)
    for turn in transcript.turns:
        for entry in (entry for entry in turn.entries if not is_silent(entry, open_calls)):
            console.print()
            columns = console.width if console.is_terminal else 0
            for block in _render_entry(entry, turn.live, calls, open_calls, columns):
                console.print(block)


def _render_entry(
    entry: Entry, live: bool, calls: Mapping[str, ToolCall], open_calls: frozenset[str], columns: int
) -> Iterator[RenderableType]:
    remark_text = entry_label(entry)
    if entry.role == "notice":
        yield Styled(f"— {remark_text} —", style="yellow")
        return
    heading = Styled(
        strip_control_chars(speaker(entry)), style="dim bold" if entry.role == "tool" else "bold"
    )
    heading.append(f"  {_format_time(entry.at)}", style="dim not bold")
    yield heading
    for line in (remark_text, "" if live else REMOVED_LABEL):
        if line:
            yield Styled(line, style="yellow")
    call = calls.get(entry.id) if entry.role == "tool" else None
    if call is not None and call.arguments not in ("", "{}"):
        yield _indented(call.arguments, "dim")
    if entry.arguments:
        yield Styled(EDITED_LABEL, style="yellow")
        yield _indented(entry.arguments, "dim")
    for part in entry.parts:
        yield from _render_part(part, entry, open_calls, columns)


def _render_part(
    part: AnyPart, entry: Entry, open_calls: frozenset[str], columns: int
) -> Iterator[RenderableType]:
    """Render one part: Markdown at `columns` width, or as plain text if `columns` is 0."""
    match part:
        case Text() if columns and entry.role == "assistant":
            yield render_markdown(strip_control_chars(part.text), columns)
        case Text():
            yield _indented(part.text)
        case Reasoning():
            if part.text:
                yield _indented(f"(thinking) {part.text}", "dim italic")
        case ToolCall():
            if part.call_id in open_calls:
                yield _indented(f"(began to call {part.name})", "dim")
        case File():
            yield _indented(f"[file: {part.name}, {part.media_type}, {format_bytes(part.size_bytes)}]", "dim")
        case Change():
            if part.diff:
                yield _indented(part.diff, "dim")


def _indented(text: str, style: str = "") -> RenderableType:
    # Indented by hand: rich's padding would fill every line with spaces to the full width.
    lines = strip_control_chars(text).rstrip("\n").split("\n")
    return Styled("\n".join(f"  {line}".rstrip() for line in lines), style=style)


def _format_time(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).strftime("%d %b %Y, %H:%M")
