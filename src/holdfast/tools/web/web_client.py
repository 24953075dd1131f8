"""Fetch one page, and only from an address that the policy allows.

The client resolves a name once per request, checks the addresses, and connects only to those. It sends no
cookies or credentials and ignores the proxies in the environment.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import aiohttp
from aiohappyeyeballs import AddrInfoType
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast.domain.limits import FETCH_URL_HEAD_BYTES_MAX
from holdfast.domain.urls import Url
from holdfast.tools.arguments import ToolError
from holdfast.tools.web.address_policy import Address, AddressPolicy, family_of, read_address
from holdfast.tools.web.decompress import ACCEPTED_ENCODINGS

ResolveHost = Callable[[str, int], Awaitable[Sequence[str]]]
"""Return the addresses of a host. Raises OSError."""
_HEADERS = (
    ("Accept", "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, */*;q=0.1"),
    ("Accept-Encoding", ACCEPTED_ENCODINGS),
    ("User-Agent", "holdfast"),
)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver. Raises OSError."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"not a name that can be looked up: {error}") from None
    return [str(address[0]) for _, _, _, _, address in found]


class _PinnedResolver(AbstractResolver):
    """Resolve one host to the addresses that have been checked for it."""

    def __init__(self, host: str, addresses: Sequence[Address]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        if host.rstrip(".") != self._host:
            raise OSError(f"{host} is not what was asked for")
        return [
            ResolveResult(
                hostname=host, host=str(address), port=port, family=family_of(address), proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]  # fmt: skip

    async def close(self) -> None:
        pass


class WebClient:
    """Fetch pages, each over its own connection."""

    def __init__(self, address_policy: AddressPolicy, resolve: ResolveHost = resolve_host) -> None:
        self._address_policy = address_policy
        self._resolve = resolve

    @asynccontextmanager
    async def get(self, url: Url) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a GET request and yield the response, its body unread and undecoded. Raises ToolError."""
        addresses = await self._resolve_addresses(url)

        def connect(addr_info: AddrInfoType) -> socket.socket:
            family, kind, protocol, _, address = addr_info
            # A last check, however the address came here: connect to no address that is unchecked.
            if read_address(str(address[0])) not in addresses:
                raise OSError(f"{address[0]} was not found good")
            return socket.socket(family, kind, protocol)

        connector = aiohttp.TCPConnector(
            resolver=_PinnedResolver(url.host, addresses), use_dns_cache=False, force_close=True,
            socket_factory=connect,
        )  # fmt: skip
        path, _, query = url.target.partition("?")
        host = f"[{url.host}]" if ":" in url.host else url.host
        request_url = URL.build(
            scheme=url.scheme, host=host, port=url.port, path=path, query_string=query, encoded=True
        )
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
                    trust_env=False, timeout=aiohttp.ClientTimeout(total=None), headers=_HEADERS,
                    max_line_size=FETCH_URL_HEAD_BYTES_MAX, max_field_size=FETCH_URL_HEAD_BYTES_MAX,
                ) as session,
                session.get(request_url, allow_redirects=False) as response,
            ):  # fmt: skip
                yield response
        except (aiohttp.ClientError, OSError) as error:
            raise ToolError(f"{url.authority} cannot be asked: {_error_text(error)}") from None

    def check_literal(self, url: Url) -> None:
        """Raise ToolError if the host is a literal address, or localhost, that the policy forbids."""
        if url.ip_address is not None:
            self._check(url, [read_address(str(url.ip_address))])
        elif f".{url.host}".endswith(".localhost"):
            self._check(url, [read_address("127.0.0.1")])

    async def _resolve_addresses(self, url: Url) -> Sequence[Address]:
        """Return the host's addresses, all of which the policy allows. Raises ToolError."""
        if url.ip_address is not None:
            found: Sequence[str] = [str(url.ip_address)]
        else:
            try:
                found = await self._resolve(url.host, url.port)
            except OSError as error:
                raise ToolError(f"{url.host} is not found: {_error_text(error)}") from None
        addresses = list(dict.fromkeys(map(read_address, found)))
        if not addresses:
            raise ToolError(f"{url.host} is not found")
        self._check(url, addresses)
        return addresses

    def _check(self, url: Url, addresses: Sequence[Address]) -> None:
        # All addresses must be allowed, since we do not choose which of them answers.
        for address in addresses:
            if not self._address_policy.allows(url, address):
                raise ToolError(
                    f"{url.authority} is not asked: {address} is not an address of the internet, but one of"
                    " this machine or of a network around it; the setting fetch_allow can allow it"
                )


def _error_text(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        return f"it does not answer as the web does ({error.message[:200]})"
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text)[:300]
