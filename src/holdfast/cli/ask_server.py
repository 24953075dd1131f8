"""Asking the server that runs over a data folder what only it knows, for commands that end by themselves."""

from typing import TypeVar

import aiohttp
import msgspec

from holdfast.cli.chat.client import Away, Client, Place, Refused
from holdfast.cli.chat.server_locator import running_server
from holdfast.cli.command_context import Desk

T = TypeVar("T")


async def from_server(desk: Desk, path: str, kind: type[T]) -> T | None:
    """What it answers; None where no server runs, or none that tells this."""

    async def nowhere() -> Place | None:
        return None

    async with aiohttp.ClientSession() as http:
        place = await running_server(desk, http)
        if place is None:
            return None
        try:
            return await Client(http, nowhere, place).get(path, kind)
        except (Away, Refused, msgspec.DecodeError):
            return None
