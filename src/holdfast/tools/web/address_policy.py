"""Decide which addresses tools may fetch from: public ones, and those that a person has allowed.

The policy refuses addresses of this machine, of local networks and of nobody, in every notation.
"""

import socket
from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from holdfast.domain.urls import InvalidUrl, Url, parse_host

Address = IPv4Address | IPv6Address

_NOT_PUBLIC_4 = tuple(IPv4Network(text) for text in (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
    "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16",
    "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "168.63.129.16/32",  # Looks public, but a cloud serves the machine's own metadata there.
))  # fmt: skip
_PUBLIC_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(IPv6Network(text) for text in (
    "2001::/23",  # Special purposes, among them Teredo, which embeds an IPv4 address.
    "2001:db8::/32", "3fff::/20",
    "2002::/16",  # 6to4, which embeds an IPv4 address too.
    "3ffe::/16", "2620:4f:8000::/48",
))  # fmt: skip
_WRAPPED_4 = tuple(IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
"""Networks whose IPv6 addresses stand for an embedded IPv4 address."""


def read_address(text: str) -> Address:
    """Parse an address with or without a zone, and unwrap an embedded IPv4 address."""
    found = ip_address(text)
    if isinstance(found, IPv6Address) and any(found in network for network in _WRAPPED_4):
        return IPv4Address(int(found) & 0xFFFF_FFFF)
    return found


def is_public(address: Address) -> bool:
    """Return whether an address is known to be public."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def is_own(address: Address) -> bool:
    """Return whether this machine itself has the address. Sends nothing."""
    try:
        with socket.socket(family_of(address), socket.SOCK_DGRAM) as probe:
            # The kernel chooses the destination as the source only if it is this machine's own.
            probe.connect((str(address), 1))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False  # This machine has no such addresses, or no route there.


def family_of(address: Address) -> socket.AddressFamily:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


class AddressPolicy:
    """Decide which addresses may be fetched: public ones, and the hosts and networks in `allowed`.

    `allowed` never opens the server itself, at `own_port`: a request from this machine may need no sign-in.
    Raises InvalidUrl if an entry is neither a host nor a network.
    """

    def __init__(self, allowed: Iterable[str] = (), own_port: int = 0) -> None:
        hosts, networks = set(), []
        for entry in allowed:
            try:
                networks.append(ip_network(entry.strip().strip("[]")))
            except ValueError:
                if "/" in entry:
                    raise InvalidUrl(f"{entry} is no network; one is written like 10.0.0.0/8") from None
                hosts.add(parse_host(entry.strip()))
        self._hosts = frozenset(hosts)
        self._networks = tuple(networks)
        self._own_port = own_port

    def allows(self, url: Url, address: Address) -> bool:
        """Return whether the page may be fetched from `address`, one of its host's addresses."""
        if is_public(address) and not is_own(address):
            return True
        allowed = url.host in self._hosts or any(address in network for network in self._networks)
        return allowed and url.port != self._own_port
