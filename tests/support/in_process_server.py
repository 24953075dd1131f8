"""An HTTP server in this process, with shorter timeouts than the real one where a test needs them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.auth.credentials import CredentialStore
from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.credentials import AuthConfig, secret_digest
from holdfast.domain.ids import IdGenerator
from holdfast.http.connections import ConnectionTimeouts
from holdfast.http.server import UvicornHttpServer
from holdfast.status import ServerStatus
from tests.support.api_client import ApiClient, api_client
from tests.support.auth_tokens import TOKEN
from tests.support.in_process_app import AppHarness

TOKEN_DIGEST = secret_digest(TOKEN)
"""The tests' own token, as the server's configuration has it."""
CREDENTIAL_MS = 900_000


def make_keyring(app: AppHarness, clock: Clock | None = None) -> CredentialStore:
    """Return a keyring whose codes and sign-ins last for `KEY_MS`."""
    clock = clock or SystemClock()
    return CredentialStore(app.store, clock, IdGenerator(clock), CREDENTIAL_MS, CREDENTIAL_MS)


async def browser_headers(keyring: CredentialStore, address: str) -> dict[str, str]:
    """Return the headers that the page of a newly signed-in browser sends with every request."""
    _, secret, page_key = await keyring.create_sign_in()
    return {"Cookie": f"holdfast_{address.rpartition(':')[2]}={secret}", "X-Holdfast-Page": page_key}


@asynccontextmanager
async def http_server(
    app: AppHarness,
    heartbeat_s: float = 15,
    *,
    keyring: CredentialStore | None = None,
    auth_config: AuthConfig | None = None,
    timeouts: ConnectionTimeouts | None = None,
) -> AsyncIterator[ApiClient]:
    """Serve `app`, and yield a client with the tests' own token."""
    server, ready = UvicornHttpServer.open("127.0.0.1", 0, False, heartbeat_s, timeouts), asyncio.Event()

    async def status() -> ServerStatus:
        return ServerStatus(Path(), "full", 0, 0, 0)

    async def ignore() -> None:
        return

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    running = asyncio.create_task(
        server.run(
            app.engine,
            status,
            keyring or make_keyring(app),
            auth_config or AuthConfig(local_digest=TOKEN_DIGEST),
            ready.set,
            ignore,
        )
    )
    await ready.wait()
    try:
        # Another server may have had this port: its token is no matter here.
        async with api_client(server.address, TOKEN) as api:
            yield api
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        server.close()
        for each, act in before.items():
            signal.signal(each, act)


def raw_request(path: str, token: str = TOKEN, method: str = "GET", **headers: str) -> bytes:
    """Return the head of a request, as bytes for a bare connection."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode()
