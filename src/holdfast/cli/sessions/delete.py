"""`holdfast sessions delete`: delete a conversation for good."""

from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.command_context import CommandContext, JsonOption, YesOption, print_json, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.errors import NoStore
from holdfast.cli.format import format_count
from holdfast.cli.sessions.find import FoundSession, IdArgument, find_session
from holdfast.domain.decisions import turns
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.transcript.labels import display_title
from holdfast.store.ports import Append, Snapshot


class DeletedSession(msgspec.Struct, frozen=True):
    """A deleted session, the number of `notes` saved from it, and whether they were deleted too."""

    id: str
    title: str
    notes: int
    notes_deleted: bool
    deleted: bool = True


def delete(
    context: typer.Context,
    session: IdArgument,
    notes: Annotated[bool, typer.Option("--notes", help="Delete the notes saved from it too.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Delete a conversation for good."""
    settings: dict[str, Any] = {"as_json": as_json, "data": data, "durability": durability}

    def read_session(snapshot: Snapshot) -> tuple[FoundSession, int]:
        found = find_session(snapshot, session)
        return found, snapshot.count_notes(found.row.id)

    async def load(command: CommandContext) -> tuple[FoundSession, int]:
        try:
            async with command.store() as store:
                return await store.snapshot(read_session)
        except NoStore:
            raise NoSuchSession(session_id=session) from None

    async def delete_session(command: CommandContext) -> None:
        async with command.store() as store:
            await store.append(Append(row.id, lambda view: turns.delete(view, row.id, notes=notes)))

    # The store is not kept open while the command waits for the confirmation.
    found, note_count = run_command(context, load, **settings)
    row, title = found.row, display_title(found.row.title, found.opening)
    notes_text = "the note saved from it" if note_count == 1 else f"the {note_count:,} notes saved from it"
    deleted_notes_text = f" and {notes_text}" if notes and note_count else ""
    kept_notes_text = f"Memory keeps {notes_text}" if note_count and not notes else ""
    if not yes:
        hint = (
            f"{kept_notes_text}; `--notes` deletes {'it' if note_count == 1 else 'them'} too. "
            if kept_notes_text
            else ""
        )
        question = (
            f"{hint}Delete “{title}” ({format_count(row.live_turns, 'turn')}){deleted_notes_text} for good?"
        )
        typer.confirm(question, abort=True, err=True)
    run_command(context, delete_session, **settings)
    if as_json:
        print_json(DeletedSession(row.id, row.title, note_count, notes))
    else:
        print(f"Deleted “{title}”{deleted_notes_text}.")
        if kept_notes_text:
            print(
                f"{kept_notes_text}. You can delete {'it' if note_count == 1 else 'them'} on the memory page."
            )
        print(
            "Its space is given back by a running server within minutes, "
            "or by `holdfast doctor` once a minute has passed."
        )
