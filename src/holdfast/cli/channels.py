"""`holdfast channels`: which chat apps there are, and who may speak there."""

import time
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from holdfast.cli.desk import Desk, JsonOption, carry_out, give, screen
from holdfast.cli.saying import age
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.reading import clean
from holdfast.office import ChannelTold, Reception, SenderTold, StrangerTold
from holdfast.store.ports import Store

CodeArgument = Annotated[str, typer.Argument(metavar="CODE", help="What they were told when they wrote.")]
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="telegram or webhook.")]
SenderArgument = Annotated[
    str, typer.Argument(metavar="SENDER", help="As `holdfast channels senders` shows it.")
]


def channels() -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, help="See which chat apps there are, and who may speak there.")
    app.command("list")(list_channels)
    app.command("pair")(pair)
    app.command("senders")(senders)
    app.command("revoke")(revoke)
    return app


def list_channels(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List chat apps, how many may speak there, and who waits to be let in."""

    async def look(desk: Desk) -> tuple[list[ChannelTold], list[SenderTold], list[StrangerTold]]:
        async with desk.store() as store:
            reception = _reception(desk, store)
            return list(reception.given()), list(await reception.senders()), list(await reception.waiting())

    given, allowed, waiting = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        told = [
            {"name": each.name, "connected": each.connected, "senders": _count(allowed, each.name)}
            for each in given
        ]
        give({"channels": told, "waiting": waiting})
        return
    table = _table("Channel", "", "May speak", "Wait")
    for each in given:
        # A running server may have been given it otherwise: its environment is not this one.
        state = "set up" if each.connected else "not set up here"
        table.add_row(each.name, state, str(_count(allowed, each.name)), str(_count(waiting, each.name)))
    screen().print(table)
    if waiting:
        print()
        screen().print(_people(waiting))


def pair(
    context: typer.Context,
    code: CodeArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Let in whoever was told this code. Running servers hold to it at once."""

    async def confirm(desk: Desk) -> SenderTold:
        async with desk.store() as store:
            return await _reception(desk, store).confirm(code)

    sender = carry_out(context, confirm, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(sender)
    else:
        print(f"{clean(sender.name) or clean(sender.sender)} may speak on {sender.channel} from now on.")


def senders(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List who may speak, the first first."""

    async def look(desk: Desk) -> list[SenderTold]:
        if not desk.has_store:
            return []
        async with desk.store() as store:
            return list(await _reception(desk, store).senders())

    found = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(found)
    elif found:
        screen().print(_people(found))
    else:
        print("Nobody may speak yet. Whoever writes to the agent is told a code to be let in with.")


def revoke(
    context: typer.Context,
    channel: ChannelArgument,
    sender: SenderArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Have somebody speak no longer. Running servers hold to it at once."""

    async def take(desk: Desk) -> None:
        async with desk.store() as store:
            await _reception(desk, store).revoke(channel, sender)

    carry_out(context, take, as_json=as_json, data=data, durability=durability)
    if as_json:
        give({"channel": channel, "sender": sender})
    else:
        print(f"{clean(sender)} may not speak on {clean(channel)} any more.")


def _reception(desk: Desk, store: Store) -> Reception:
    return desk.wiring.reception(store, desk.settings)


def _count(people: list[SenderTold] | list[StrangerTold], channel: str) -> int:
    return sum(each.channel == channel for each in people)


def _people(found: list[SenderTold] | list[StrangerTold]) -> Table:
    table = _table("Channel", "Sender", "Name", "Since")
    now = time.time_ns() // 1_000_000
    for each in found:
        since = each.allowed_at if isinstance(each, SenderTold) else each.asked_at
        table.add_row(
            Text(clean(each.channel)), Text(clean(each.sender)), Text(clean(each.name)), age(now - since)
        )
    return table


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, no_wrap=title != "Name", overflow="fold")
    return table
