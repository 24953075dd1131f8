"""An HTTP door in this process, over a house: what a test needs to be quicker or shorter-lived than it is."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.auth.credentials import Keyring
from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.credentials import Entrance, digest_of
from holdfast.domain.ids import Ids
from holdfast.http.connections import Patience
from holdfast.http.server import HttpDoor
from holdfast.status import Overview
from tests.support.api_client import Api, talking
from tests.support.auth_tokens import TOKEN
from tests.support.in_process_app import House

OWN = digest_of(TOKEN)
"""What lets tests in, as an entrance knows it."""
KEY_MS = 900_000


def keyring_of(here: House, clock: Clock | None = None) -> Keyring:
    """Codes and sign-ins that last for `KEY_MS`."""
    clock = clock or SystemClock()
    return Keyring(here.store, clock, Ids(clock), KEY_MS, KEY_MS)


async def signed_in(keyring: Keyring, address: str) -> dict[str, str]:
    """What the page of a browser that has just signed in there sends with every request."""
    _, secret, page_key = await keyring.sign_in()
    return {"Cookie": f"holdfast_{address.rpartition(':')[2]}={secret}", "X-Holdfast-Page": page_key}


@asynccontextmanager
async def door(
    here: House,
    heartbeat_s: float = 15,
    *,
    keyring: Keyring | None = None,
    entrance: Entrance | None = None,
    patience: Patience | None = None,
) -> AsyncIterator[Api]:
    """Talks with the tests' own token."""
    opened, ready = HttpDoor.open("127.0.0.1", 0, False, heartbeat_s, patience), asyncio.Event()

    async def look() -> Overview:
        return Overview(Path(), "full", 0, 0, 0)

    async def leave() -> None:
        return

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    running = asyncio.create_task(
        opened.run(
            here.engine,
            look,
            keyring or keyring_of(here),
            entrance or Entrance(local_digest=OWN),
            ready.set,
            leave,
        )
    )
    await ready.wait()
    try:
        # Another server may have had this port: its token is no matter here.
        async with talking(opened.address, TOKEN) as api:
            yield api
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        opened.close()
        for each, act in before.items():
            signal.signal(each, act)


def asking(path: str, token: str = TOKEN, method: str = "GET", **headers: str) -> bytes:
    """The head of a request, as it goes over a bare connection."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode()
