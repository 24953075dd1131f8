"""`holdfast link`: print a one-time sign-in link for each server that is running."""

import typer

from holdfast.auth.credentials import Keyring
from holdfast.cli.command_context import Desk, JsonOption, carry_out, give
from holdfast.cli.errors import NoServer
from holdfast.cli.server_access import link_to, servers
from holdfast.cli.wiring import DataOption, DurabilityOption
from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import Ids


def link(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Print a one-time sign-in link."""

    async def make(desk: Desk) -> list[str]:
        async with desk.store() as store:
            keyring = Keyring(store, SystemClock(), Ids(SystemClock()))
            links = [await link_to(each, keyring) for each in (await servers(store)).values()]
            if not links:
                raise NoServer(path=desk.settings.data)
            return links

    links = carry_out(context, make, as_json=as_json, data=data, durability=durability)
    if as_json:
        give(links)
    else:
        print("\n".join(links))
