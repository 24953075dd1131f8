"""`holdfast sessions delete`: for good."""

from typing import Any

import msgspec
import typer

from holdfast.cli.desk import Desk, JsonOption, YesOption, carry_out, give
from holdfast.cli.errors import NoStore
from holdfast.cli.saying import counted
from holdfast.cli.sessions.finding import Found, IdArgument, find
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain import turns
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.reading import title_of
from holdfast.store.ports import Append


class Deleted(msgspec.Struct, frozen=True):
    id: str
    title: str
    deleted: bool = True


def delete(
    context: typer.Context,
    session: IdArgument,
    yes: YesOption = False,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Delete a conversation for good."""
    settings: dict[str, Any] = {"as_json": as_json, "data": data, "durability": durability}

    async def look(desk: Desk) -> Found:
        try:
            async with desk.store() as store:
                return await store.snapshot(lambda snapshot: find(snapshot, session))
        except NoStore:
            raise NoSuchSession(session_id=session) from None

    async def remove(desk: Desk) -> None:
        async with desk.store() as store:
            await store.append(Append(row.id, lambda view: turns.delete(view, row.id)))

    # The store is closed while a person thinks.
    found = carry_out(context, look, **settings)
    row, title = found.row, title_of(found.row.title, found.opening)
    if not yes:
        typer.confirm(f"Delete “{title}” ({counted(row.live_turns, 'turn')}) for good?", abort=True, err=True)
    carry_out(context, remove, **settings)
    if as_json:
        give(Deleted(row.id, row.title))
    else:
        print(f"Deleted “{title}”.")
        print(
            "Its space is given back by a running server within minutes, "
            "or by `holdfast doctor` once a minute has passed."
        )
