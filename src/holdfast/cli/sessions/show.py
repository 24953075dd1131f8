"""`holdfast sessions show`: a conversation to read in the terminal."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.text import Text as Styled

from holdfast.cli.command_context import Desk, JsonOption, carry_out, give, screen
from holdfast.cli.errors import NoStore
from holdfast.cli.format import counted
from holdfast.cli.progress import Bar
from holdfast.cli.rendering import rendered
from holdfast.cli.sessions.find import Found, IdArgument, find, transcript
from holdfast.cli.sessions.list_sessions import summary
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events.parts import AnyPart, Change, File, Reasoning, Text, ToolCall
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.labels import (
    CHANGED,
    STATUS,
    TAKEN_BACK,
    calls_of,
    clean,
    is_silent,
    remark,
    speaker,
    title_of,
    unanswered,
)
from holdfast.domain.transcript.transcript import Entry, Transcript
from holdfast.status import in_bytes


def show(
    context: typer.Context,
    session: IdArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Show a conversation to read."""

    async def look(desk: Desk) -> tuple[Found, Transcript]:
        try:
            async with desk.store() as store:
                found = await store.snapshot(lambda snapshot: find(snapshot, session))
                with Bar("Reading", shown=not as_json) as bar:
                    return found, await transcript(store, found, bar)
        except NoStore:
            raise NoSuchSession(session_id=session) from None

    found, told = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(msgspec.to_builtins(summary(found.row, found.opening)) | {"transcript": told.turns})
    else:
        _tell(screen(), found.row, title_of(found.row.title, found.opening), told)


def _tell(console: Console, row: SessionRow, title: str, told: Transcript) -> None:
    console.print(Styled(title, style="bold"))
    status = f"{row.id} · {STATUS[row.status]} · {counted(row.live_turns, 'turn')}"
    console.print(Styled(status, style="dim"))
    calls, open_calls = calls_of(told), unanswered(told)
    for turn in told.turns:
        for entry in (entry for entry in turn.entries if not is_silent(entry, open_calls)):
            console.print()
            columns = console.width if console.is_terminal else 0
            for block in _entry(entry, turn.live, calls, open_calls, columns):
                console.print(block)


def _entry(
    entry: Entry, live: bool, calls: Mapping[str, ToolCall], open_calls: frozenset[str], columns: int
) -> Iterator[RenderableType]:
    said = remark(entry)
    if entry.role == "notice":
        yield Styled(f"— {said} —", style="yellow")
        return
    heading = Styled(clean(speaker(entry)), style="dim bold" if entry.role == "tool" else "bold")
    heading.append(f"  {_when(entry.at)}", style="dim not bold")
    yield heading
    for line in (said, "" if live else TAKEN_BACK):
        if line:
            yield Styled(line, style="yellow")
    call = calls.get(entry.id) if entry.role == "tool" else None
    if call is not None and call.arguments not in ("", "{}"):
        yield _indented(call.arguments, "dim")
    if entry.arguments:
        yield Styled(CHANGED, style="yellow")
        yield _indented(entry.arguments, "dim")
    for part in entry.parts:
        yield from _part(part, entry, open_calls, columns)


def _part(part: AnyPart, entry: Entry, open_calls: frozenset[str], columns: int) -> Iterator[RenderableType]:
    """Markdown is drawn for so many columns; with none, text is written as it is."""
    match part:
        case Text() if columns and entry.role == "assistant":
            yield rendered(clean(part.text), columns)
        case Text():
            yield _indented(part.text)
        case Reasoning():
            if part.text:
                yield _indented(f"(thinking) {part.text}", "dim italic")
        case ToolCall():
            if part.call_id in open_calls:
                yield _indented(f"(began to call {part.name})", "dim")
        case File():
            yield _indented(f"[file: {part.name}, {part.media_type}, {in_bytes(part.size_bytes)}]", "dim")
        case Change():
            if part.diff:
                yield _indented(part.diff, "dim")


def _indented(text: str, style: str = "") -> RenderableType:
    # Padded by hand: rich would fill every line with spaces up to the screen's width.
    lines = clean(text).rstrip("\n").split("\n")
    return Styled("\n".join(f"  {line}".rstrip() for line in lines), style=style)


def _when(at: int) -> str:
    return datetime.fromtimestamp(at / 1000).strftime("%d %b %Y, %H:%M")
