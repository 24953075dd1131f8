"""`holdfast link`: print a one-time sign-in link for each server that is running."""

import typer

from holdfast.auth.credentials import CredentialStore
from holdfast.cli.command_context import CommandContext, JsonOption, print_json, run_command
from holdfast.cli.dependencies import DataOption, DurabilityOption
from holdfast.cli.errors import NoServer
from holdfast.cli.server_access import create_sign_in_link, running_servers
from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator


def link(
    context: typer.Context,
    as_json: JsonOption = False,
    data: DataOption = None,
    durability: DurabilityOption = None,
) -> None:
    """Print a one-time sign-in link."""

    async def create_links(command: CommandContext) -> list[str]:
        async with command.store() as store:
            credential_store = CredentialStore(store, SystemClock(), IdGenerator(SystemClock()))
            links = [
                await create_sign_in_link(server, credential_store)
                for server in (await running_servers(store)).values()
            ]
            if not links:
                raise NoServer(path=command.settings.data)
            return links

    links = run_command(context, create_links, as_json=as_json, data=data, durability=durability)
    if as_json:
        print_json(links)
    else:
        print("\n".join(links))
