"""`holdfast channels`: list chat apps, and pair, list and revoke their senders."""

from typing import Annotated

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from holdfast.channels.info import ChannelAccess, ChannelInfo, PendingSenderInfo, SenderInfo
from holdfast.cli.ask_server import get_from_server
from holdfast.cli.command_context import CommandContext, JsonOption, output_console, print_json, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.format import format_age
from holdfast.cli.tables import make_table, print_list
from holdfast.domain.clock import SystemClock
from holdfast.domain.transcript.labels import strip_control_chars
from holdfast.store.ports import Store

CodeArgument = Annotated[str, typer.Argument(metavar="CODE", help="What they were told when they wrote.")]
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="telegram or webhook.")]
SenderArgument = Annotated[
    str, typer.Argument(metavar="SENDER", help="As `holdfast channels senders` shows it.")
]


class _ServerChannels(msgspec.Struct, frozen=True):
    """The response of a running server about its channels."""

    channels: tuple[ChannelInfo, ...]


class _ChannelListing(msgspec.Struct, frozen=True):
    """The channels and their senders; without a running server, only from the settings found here."""

    server_running: bool
    channels: list[ChannelInfo]
    allowed: list[SenderInfo]
    waiting: list[PendingSenderInfo]


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

    async def load_channels(command: CommandContext) -> _ChannelListing:
        running = await get_from_server(command, "/api/channels", _ServerChannels)
        async with command.store() as store:
            channel_access = _channel_access(command, store)
            channel_infos = running.channels if running is not None else channel_access.configured_channels()
            allowed, waiting = await channel_access.senders(), await channel_access.pending_senders()
            return _ChannelListing(running is not None, list(channel_infos), list(allowed), list(waiting))

    listing = run_command(context, load_channels, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json({
            "running": listing.server_running,
            "channels": [_channel_object(listing, each) for each in listing.channels],
            "waiting": listing.waiting,
        })  # fmt: skip
        return
    channels_table = make_table("Channel", "", "May speak", "Wait")
    for channel in listing.channels:
        # Without a server this is only a guess: the next server may get another environment.
        state = (
            "set up" if channel.connected else "not set up" if listing.server_running else "not set up here"
        )
        allowed, waiting = (
            _count_in_channel(listing.allowed, channel.name),
            _count_in_channel(listing.waiting, channel.name),
        )
        channels_table.add_row(channel.name, state, str(allowed), str(waiting))
    output_console().print(channels_table)
    for channel in listing.channels:
        for what, why in (
            ("went wrong last", channel.last_error),
            ("was not delivered", channel.undelivered),
        ):
            if why:
                print(f"{channel.name}: {what}: {strip_control_chars(why)}")
    if listing.waiting:
        print()
        output_console().print(_senders_table(listing.waiting))


def pair(
    context: typer.Context,
    code: CodeArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Let in whoever was told this code. Running servers hold to it at once."""

    async def confirm_pairing(command: CommandContext) -> SenderInfo:
        async with command.store() as store:
            return await _channel_access(command, store).confirm(code)

    sender = run_command(context, confirm_pairing, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(sender)
    else:
        name = strip_control_chars(sender.name) or strip_control_chars(sender.sender)
        print(f"{name} may speak on {sender.channel} from now on.")


def senders(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """List who may speak, the first first."""

    async def load_senders(command: CommandContext) -> list[SenderInfo]:
        if not command.has_store:
            return []
        async with command.store() as store:
            return list(await _channel_access(command, store).senders())

    found = run_command(context, load_senders, as_json=as_json, data=data, durability=durability)
    empty_message = "Nobody may speak yet. Whoever writes to the agent is told a code to be let in with."
    print_list(found, as_json, _senders_table, empty_message)


def revoke(
    context: typer.Context,
    channel: ChannelArgument,
    sender: SenderArgument,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Have somebody speak no longer. Running servers hold to it at once."""

    async def revoke_sender(command: CommandContext) -> None:
        async with command.store() as store:
            await _channel_access(command, store).revoke(channel, sender)

    run_command(context, revoke_sender, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json({"channel": channel, "sender": sender})
    else:
        print(f"{strip_control_chars(sender)} may not speak on {strip_control_chars(channel)} any more.")


def _channel_access(command: CommandContext, store: Store) -> ChannelAccess:
    return command.dependencies.channel_access(store, command.settings)


def _channel_object(listing: _ChannelListing, channel: ChannelInfo) -> dict[str, object]:
    settings: dict[str, object] = {
        "name": channel.name,
        "connected": channel.connected,
        "senders": _count_in_channel(listing.allowed, channel.name),
    }
    if not listing.server_running:
        return settings
    server_state = {
        "serving": channel.serving,
        "last_error": channel.last_error,
        "undelivered": channel.undelivered,
    }
    return settings | server_state


def _count_in_channel(people: list[SenderInfo] | list[PendingSenderInfo], channel: str) -> int:
    return sum(each.channel == channel for each in people)


def _senders_table(found: list[SenderInfo] | list[PendingSenderInfo]) -> Table:
    senders_table, now = (
        make_table("Channel", "Sender", "Name", "Since", wrapped_column="Name"),
        SystemClock().now_ms(),
    )
    for sender in found:
        since = sender.allowed_at if isinstance(sender, SenderInfo) else sender.asked_at
        senders_table.add_row(
            Text(strip_control_chars(sender.channel)),
            Text(strip_control_chars(sender.sender)),
            Text(strip_control_chars(sender.name)),
            format_age(now - since),
        )
    return senders_table
