"""Where the chat finds its server: one that runs over the data folder, or else one inside this process."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
from msgspec.structs import replace

from holdfast.cli.chat.client import Client, Place
from holdfast.cli.command_context import Desk
from holdfast.cli.run_server import attend, end_work
from holdfast.cli.server_access import local_token, servers
from holdfast.cli.wiring import Staff
from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.status import Overview

PROBE_S_MAX = 5.0
ALONE_S = 10.0
"""How long a server that went is waited for before the chat does its work itself."""
LOOPBACK = "127.0.0.1"
UNSUITED = (
    "No server came back. This chat does not do its work itself: {model} is not known here, only the "
    "scripted demo is. Start `holdfast serve` where it was started before."
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def running_server(desk: Desk, http: aiohttp.ClientSession) -> Place | None:
    """The first server over the data folder that answers; None when there is none."""
    if not desk.has_store:
        return None
    async with desk.store() as store:
        found = await servers(store)
    for each in found.values():
        token = local_token(desk.settings.data) if each.auth else ""
        place = Place(each.address or each.url, token, model=each.model)
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            limit = aiohttp.ClientTimeout(total=PROBE_S_MAX)
            async with http.get(f"{place.url.rstrip('/')}/health/live", timeout=limit) as answer:
                if answer.status == 200:
                    return place
    return None


@asynccontextmanager
async def reaching(desk: Desk, say: Callable[[str], None]) -> AsyncIterator[Client]:
    """A client of the server that runs, or of one of our own for as long as this lasts, which `say` tells.

    That goes too if the server goes and none comes back.
    """
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as http, AsyncExitStack() as parts:
        finding = Finding(desk, http, parts, say)
        place = await running_server(desk, http)
        if place is None:
            place = await finding.serve()
            say("No server runs here, so this chat does its work itself, until you leave.")
        finding.before = place.model
        yield Client(http, finding, place)


@asynccontextmanager
async def own_server(
    desk: Desk, say: Callable[[str], None], check: Callable[[Staff], None]
) -> AsyncIterator[Place]:
    """The server's own parts in this process, on a port that only this machine reaches, as `check` allows."""

    async def stop(staff: Staff, grace_s: float) -> None:
        if staff.engine.runner.at_work:
            say("What is not finished goes on at the next start.")
        await end_work(staff, grace_s)

    def tell(overview: Overview, link: str) -> None:
        for problem in overview.problems:
            say(problem)
        ready.set()

    settings = replace(desk.settings, host=LOOPBACK, public_url="", allowed_hosts=())
    door = desk.wiring.open_door(LOOPBACK, 0, or_next=False)
    ready, signals = asyncio.Event(), [signal.getsignal(each) for each in _SIGNALS]
    serving = asyncio.create_task(attend(desk.wiring, settings, door, tell, stop, check))
    try:
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not ready.is_set():
            await serving
        # The door has made the signals its own, and is told by us instead: first the chat has to leave.
        told: Any = signal.getsignal(signal.SIGTERM)
        for signum, before in zip(_SIGNALS, signals, strict=True):
            signal.signal(signum, before)
        yield Place(door.address, local_token(settings.data) if settings.auth == "on" else "", is_own=True)
        told(signal.SIGTERM, None)
        await serving
    finally:
        if not serving.done():
            serving.cancel()
            with suppress(asyncio.CancelledError, HoldfastError):
                await serving
        door.close()


class _Unsuited(Exception):
    """Here a script would answer where a model did."""


class Finding:
    """Looks for a server, and becomes one when there has been none for a while. `parts` lasts as long.

    `before` is the model that answered until then. Where that was a real one and nothing here knows of any,
    the chat does not become the server: a script would go on with what a model has begun.
    """

    def __init__(
        self,
        desk: Desk,
        http: aiohttp.ClientSession,
        parts: AsyncExitStack,
        say: Callable[[str], None],
        alone_s: float = ALONE_S,
    ) -> None:
        self._desk = desk
        self._http = http
        self._parts = parts
        self._say = say
        self._alone_s = alone_s
        self.before = ""
        self._own: Place | None = None
        self._is_unsuited = False
        self._gone_at: float | None = None

    async def __call__(self) -> Place | None:
        if self._own is not None:
            return self._own
        # A store that is being closed, restored or is out of room may be there again a moment later.
        with suppress(HoldfastError, OSError):
            found = await running_server(self._desk, self._http)
            if found is not None:
                self._gone_at, self.before, self._is_unsuited = None, found.model, False
                return found
            now = asyncio.get_running_loop().time()
            self._gone_at = self._gone_at or now
            if now - self._gone_at >= self._alone_s and not self._is_unsuited:
                return await self._take_over()
        return None

    async def serve(self) -> Place:
        """Be the server from now on."""
        own = own_server(self._desk, self._say, self._check)
        self._own = await self._parts.enter_async_context(own)
        return self._own

    async def _take_over(self) -> Place | None:
        try:
            return await self.serve()
        except _Unsuited:
            self._is_unsuited = True
            self._say(UNSUITED.format(model=self.before))
            return None

    def _check(self, staff: Staff) -> None:
        if staff.model.name == DEMO and self.before not in ("", DEMO):
            raise _Unsuited
