"""`holdfast sessions delete`: for good."""

from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli.command_context import Desk, JsonOption, YesOption, carry_out, give
from holdfast.cli.errors import NoStore
from holdfast.cli.format import counted
from holdfast.cli.sessions.find import Found, IdArgument, find
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.decisions import turns
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.transcript.labels import title_of
from holdfast.store.ports import Append, Snapshot


class Deleted(msgspec.Struct, frozen=True):
    """`notes` is how many notes were saved from it, `notes_deleted` whether they went with it."""

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

    def read(snapshot: Snapshot) -> tuple[Found, int]:
        found = find(snapshot, session)
        return found, snapshot.count_notes(found.row.id)

    async def look(desk: Desk) -> tuple[Found, int]:
        try:
            async with desk.store() as store:
                return await store.snapshot(read)
        except NoStore:
            raise NoSuchSession(session_id=session) from None

    async def remove(desk: Desk) -> None:
        async with desk.store() as store:
            await store.append(Append(row.id, lambda view: turns.delete(view, row.id, notes=notes)))

    # The store is closed while a person thinks.
    found, saved = carry_out(context, look, **settings)
    row, title = found.row, title_of(found.row.title, found.opening)
    those = "the note saved from it" if saved == 1 else f"the {counted(saved, 'note')} saved from it"
    gone, stay = (f" and {those}", "") if notes and saved else ("", f"Memory keeps {those}" if saved else "")
    if not yes:
        hint = f"{stay}; `--notes` deletes {'it' if saved == 1 else 'them'} too. " if stay else ""
        question = f"{hint}Delete “{title}” ({counted(row.live_turns, 'turn')}){gone} for good?"
        typer.confirm(question, abort=True, err=True)
    carry_out(context, remove, **settings)
    if as_json:
        give(Deleted(row.id, row.title, saved, notes))
    else:
        print(f"Deleted “{title}”{gone}.")
        if stay:
            print(f"{stay}. You can delete {'it' if saved == 1 else 'them'} on the memory page.")
        print(
            "Its space is given back by a running server within minutes, "
            "or by `holdfast doctor` once a minute has passed."
        )
