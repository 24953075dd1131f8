"""Read from the server that runs over a data folder, for one-shot commands."""

from typing import TypeVar

import aiohttp
import msgspec

from holdfast.cli.chat.client import Client, RequestRefused, ServerEndpoint, ServerUnavailable
from holdfast.cli.chat.server_locator import find_running_server
from holdfast.cli.command_context import CommandContext

T = TypeVar("T")


async def get_from_server(command: CommandContext, path: str, response_type: type[T]) -> T | None:
    """Return the server's response; None if no server runs, or if it does not have this."""

    async def find_no_server() -> ServerEndpoint | None:
        return None

    async with aiohttp.ClientSession() as http:
        endpoint = await find_running_server(command, http)
        if endpoint is None:
            return None
        try:
            return await Client(http, find_no_server, endpoint).get(path, response_type)
        except (ServerUnavailable, RequestRefused, msgspec.DecodeError):
            return None
