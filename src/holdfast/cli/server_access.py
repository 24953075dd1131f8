"""Check a server's access settings, announce its address, and create sign-in links and the local token."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from holdfast.auth.credentials import CredentialStore
from holdfast.cli.command_context import print_stderr
from holdfast.cli.errors import AuthOff, BadTokenFile, NeedsPassword
from holdfast.domain.clock import SystemClock
from holdfast.domain.credentials import AuthConfig, ServerAddress, new_secret, secret_digest
from holdfast.domain.errors import StoreFault
from holdfast.domain.ids import ProcessId
from holdfast.settings.settings import ConfigError, Settings
from holdfast.store.plain_files import BadSecretFile, read_or_create_secret
from holdfast.store.ports import Store

ADDRESS_KIND = "address"
"""The kind of the stored items in which each server announces its address."""
_RESERVED_PATHS = frozenset({"api", "page", "health", "metrics", "openapi.json", "v1"})
_TOKEN_CHARS_MIN = 32


def check_access_settings(settings: Settings, is_local: bool) -> None:
    """Raise AuthOff or ConfigError if the settings do not go together."""
    if settings.auth == "off":
        exposures = (
            ("" if is_local else f"the host {settings.host}"),
            (settings.public_url and "public_url"),
            (settings.allowed_hosts and "allowed_hosts"),
        )
        for what in exposures:
            if what:
                raise AuthOff(what=what)
    try:
        public = urlsplit(settings.public_url)
        assert public.port is None or public.port >= 0
    except ValueError as error:
        raise ConfigError(where="public_url", problem=str(error)) from None
    first_segment = public.path.strip("/").partition("/")[0]
    if first_segment in _RESERVED_PATHS:
        problem = f"its path begins with /{first_segment}, which is a path of the server's own"
        raise ConfigError(where="public_url", problem=problem)


async def check_credentials_exist(
    settings: Settings, is_local: bool, credential_store: CredentialStore
) -> None:
    """Raise NeedsPassword if other machines can reach the server and there is no credential."""
    if not is_local:
        credentials = await credential_store.load_snapshot()
        if credentials.password is None and not credentials.tokens:
            raise NeedsPassword(host=settings.host)


def get_auth_config(settings: Settings) -> AuthConfig:
    """Return the server's auth configuration; create the local token if missing. Raises BadTokenFile."""
    if settings.auth == "off":
        return AuthConfig(auth=False)
    digest = secret_digest(local_token(settings.data))
    return AuthConfig(True, digest, settings.public_url, settings.allowed_hosts)


@asynccontextmanager
async def announce_server(
    store: Store, credential_store: CredentialStore, settings: Settings, address: str, model: str
) -> AsyncIterator[str]:
    """Store this server's address while the context is open; yield a sign-in link."""
    url = settings.public_url.rstrip("/") + "/" if settings.public_url else address
    listening = ServerAddress(url, settings.auth == "on", SystemClock().now_ms(), address, model)
    await store.put_item(ADDRESS_KIND, store.own_process, msgspec.json.encode(listening))
    try:
        yield await create_sign_in_link(listening, credential_store)
    finally:
        with suppress(StoreFault):  # Readers also check the lock of the process, so a leftover is harmless.
            await store.take_item(ADDRESS_KIND, store.own_process)


async def create_sign_in_link(listening: ServerAddress, credential_store: CredentialStore) -> str:
    """Return a link that signs one browser in. Browsers never send the part after #, so no log has it."""
    return f"{listening.url}#code={await credential_store.create_code()}" if listening.auth else listening.url


async def running_servers(store: Store) -> Mapping[str, ServerAddress]:
    """Return the servers that run over this store, oldest first, and remove the entries of dead ones."""
    found = {
        process_id: msgspec.json.decode(body, type=ServerAddress)
        for process_id, body in (await store.items(ADDRESS_KIND)).items()
    }
    for process_id in found:
        if not store.is_alive(ProcessId(process_id)):
            await store.take_item(ADDRESS_KIND, process_id)
    alive = {key: server for key, server in found.items() if store.is_alive(ProcessId(key))}
    return dict(sorted(alive.items(), key=lambda item: item[1].since))


TOKEN_FILE_NAME = "token"


def local_token(folder: Path) -> str:
    """Return the token in `folder`; create it if missing. Raises BadTokenFile or OSError."""
    path = folder / TOKEN_FILE_NAME
    try:
        token = read_or_create_secret(path, new_secret, print_stderr)
    except BadSecretFile as wrong:
        raise BadTokenFile(path=path, why=wrong) from None
    if len(token) < _TOKEN_CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadTokenFile(
            path=path, why=f"it does not hold one word of {_TOKEN_CHARS_MIN} characters or more"
        )
    return token
