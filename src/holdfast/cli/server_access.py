"""Who a server lets in, decided from its settings; its sign-in link and the token of local commands."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from holdfast.auth.credentials import Keyring
from holdfast.cli.command_context import note
from holdfast.cli.errors import AuthOff, BadTokenFile, NeedsPassword
from holdfast.domain.clock import SystemClock
from holdfast.domain.credentials import Entrance, Listening, digest_of, new_secret
from holdfast.domain.errors import StoreFault
from holdfast.domain.ids import ProcessId
from holdfast.settings.settings import ConfigError, Settings
from holdfast.store.plain_files import NotOwn, own_secret
from holdfast.store.ports import Store

ADDRESS = "address"
"""The kind on the shelf under which each server says where it listens."""
_OWN_STEPS = frozenset({"api", "page", "health", "metrics", "openapi.json", "v1"})
_CHARS_MIN = 32


def check_door(settings: Settings, is_local: bool) -> None:
    """Raises AuthOff or ConfigError where the settings do not go together."""
    if settings.auth == "off":
        reaching = (
            ("" if is_local else f"the host {settings.host}"),
            (settings.public_url and "public_url"),
            (settings.allowed_hosts and "allowed_hosts"),
        )
        for what in reaching:
            if what:
                raise AuthOff(what=what)
    try:
        public = urlsplit(settings.public_url)
        assert public.port is None or public.port >= 0
    except ValueError as error:
        raise ConfigError(where="public_url", problem=str(error)) from None
    first = public.path.strip("/").partition("/")[0]
    if first in _OWN_STEPS:
        problem = f"its path begins with /{first}, which is a path of the server's own"
        raise ConfigError(where="public_url", problem=problem)


async def check_keys(settings: Settings, is_local: bool, keyring: Keyring) -> None:
    """Raises NeedsPassword: whom other machines can reach must be able to tell who comes."""
    if not is_local:
        keys = await keyring.keys()
        if keys.password is None and not keys.tokens:
            raise NeedsPassword(host=settings.host)


def entrance_of(settings: Settings) -> Entrance:
    """Makes the token of local commands where it is missing. Raises BadTokenFile."""
    if settings.auth == "off":
        return Entrance(auth=False)
    digest = digest_of(local_token(settings.data))
    return Entrance(True, digest, settings.public_url, settings.allowed_hosts)


@asynccontextmanager
async def announced(
    store: Store, keyring: Keyring, settings: Settings, address: str, model: str
) -> AsyncIterator[str]:
    """Say on the shelf where this server is, while it is there; yields the link to come in by."""
    url = settings.public_url.rstrip("/") + "/" if settings.public_url else address
    listening = Listening(url, settings.auth == "on", SystemClock().now_ms(), address, model)
    await store.put_item(ADDRESS, store.own_process, msgspec.json.encode(listening))
    try:
        yield await link_to(listening, keyring)
    finally:
        with suppress(StoreFault):  # A server that is gone is known to be by its lock.
            await store.take_item(ADDRESS, store.own_process)


async def link_to(listening: Listening, keyring: Keyring) -> str:
    """A link that signs one browser in. What stands behind # is never sent, and so never logged."""
    return f"{listening.url}#code={await keyring.new_code()}" if listening.auth else listening.url


async def servers(store: Store) -> Mapping[str, Listening]:
    """Every server that runs over this store, the first one first. Those that died are forgotten."""
    found = {
        process_id: msgspec.json.decode(body, type=Listening)
        for process_id, body in (await store.items(ADDRESS)).items()
    }
    for process_id in found:
        if not store.is_alive(ProcessId(process_id)):
            await store.take_item(ADDRESS, process_id)
    alive = {key: each for key, each in found.items() if store.is_alive(ProcessId(key))}
    return dict(sorted(alive.items(), key=lambda item: item[1].since))


NAME = "token"


def local_token(folder: Path) -> str:
    """The token in `folder`, made when it is missing. Raises BadTokenFile or OSError."""
    path = folder / NAME
    try:
        token = own_secret(path, new_secret, note)
    except NotOwn as wrong:
        raise BadTokenFile(path=path, why=wrong) from None
    if len(token) < _CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadTokenFile(path=path, why=f"it does not hold one word of {_CHARS_MIN} characters or more")
    return token
