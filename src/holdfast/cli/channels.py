"""`holdfast channels`: which chat apps there are, and who may speak there."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.channels.info import ChannelTold, Reception, SenderTold, StrangerTold
from holdfast.cli.ask_server import from_server
from holdfast.cli.command_context import Desk, JsonOption, carry_out, give, screen
from holdfast.cli.format import age
from holdfast.cli.tables import table, tell_list
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.clock import SystemClock
from holdfast.domain.transcript.labels import clean
from holdfast.store.ports import Store

CodeArgument = Annotated[str, typer.Argument(metavar="CODE", help="What they were told when they wrote.")]
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="telegram or webhook.")]
SenderArgument = Annotated[
    str, typer.Argument(metavar="SENDER", help="As `holdfast channels senders` shows it.")
]


class _Running(msgspec.Struct, frozen=True):
    """What a server tells of its chat apps."""

    channels: tuple[ChannelTold, ...]


class _Seen(msgspec.Struct, frozen=True):
    """`running`: a server told how its channels fare; else only the settings found here are known."""

    running: bool
    channels: list[ChannelTold]
    allowed: list[SenderTold]
    waiting: list[StrangerTold]


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
    """List chat apps, how they fare where a server runs, how many may speak there, and who waits."""

    async def look(desk: Desk) -> _Seen:
        running = await from_server(desk, "/api/channels", _Running)
        async with desk.store() as store:
            reception = _reception(desk, store)
            given = running.channels if running is not None else reception.given()
            allowed, waiting = await reception.senders(), await reception.waiting()
            return _Seen(running is not None, list(given), list(allowed), list(waiting))

    seen = carry_out(context, look, as_json=as_json, data=data, durability=durability)
    if as_json:
        give({
            "running": seen.running,
            "channels": [_fares(seen, each) for each in seen.channels],
            "waiting": seen.waiting,
        })  # fmt: skip
        return
    shown = table("Channel", "", "May speak", "Wait")
    for each in seen.channels:
        # Without a server nobody knows what the next one is given: its environment need not be this one.
        state = "set up" if each.connected else "not set up" if seen.running else "not set up here"
        allowed, waiting = _count(seen.allowed, each.name), _count(seen.waiting, each.name)
        shown.add_row(each.name, state, str(allowed), str(waiting))
    screen().print(shown)
    for each in seen.channels:
        for what, why in (("went wrong last", each.last_error), ("was not delivered", each.undelivered)):
            if why:
                print(f"{each.name}: {what}: {clean(why)}")
    if seen.waiting:
        print()
        screen().print(_people(seen.waiting))


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
    none = "Nobody may speak yet. Whoever writes to the agent is told a code to be let in with."
    tell_list(found, as_json, _people, none)


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


def _fares(seen: _Seen, channel: ChannelTold) -> dict[str, object]:
    known: dict[str, object] = {
        "name": channel.name, "connected": channel.connected, "senders": _count(seen.allowed, channel.name)
    }  # fmt: skip
    if not seen.running:
        return known
    told = {"serving": channel.serving, "last_error": channel.last_error, "undelivered": channel.undelivered}
    return known | told


def _count(people: list[SenderTold] | list[StrangerTold], channel: str) -> int:
    return sum(each.channel == channel for each in people)


def _people(found: list[SenderTold] | list[StrangerTold]) -> Table:
    shown, now = table("Channel", "Sender", "Name", "Since", wraps="Name"), SystemClock().now_ms()
    for each in found:
        since = each.allowed_at if isinstance(each, SenderTold) else each.asked_at
        shown.add_row(
            Text(clean(each.channel)), Text(clean(each.sender)), Text(clean(each.name)), age(now - since)
        )
    return shown
