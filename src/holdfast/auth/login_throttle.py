"""How often somebody has failed to come in, lately."""

import ipaddress
import math
from collections import Counter
from collections.abc import Callable

from holdfast.domain.limits import TRIES_ADDRESSES_MAX, TRIES_MAX, TRIES_PER_ADDRESS_MAX, TRIES_WINDOW_S

_OTHERS = "others"
_SITE_BITS = 64
"""Whoever has one IPv6 address has all that share so many bits with it."""


class Tries:
    """Failed tries, by address and in all. `now` is in seconds, from anywhere."""

    def __init__(
        self,
        now: Callable[[], float],
        per_address: int = TRIES_PER_ADDRESS_MAX,
        in_all: int = TRIES_MAX,
        window_s: float = TRIES_WINDOW_S,
    ) -> None:
        self._now = now
        self._per_address = per_address
        self._in_all = in_all
        self._window_s = window_s
        self._began = now()
        self._counts: Counter[str] = Counter()
        self._all = 0

    def wait_s(self, address: str) -> int:
        """Seconds until this address may try again; 0 when it may now."""
        self._turn_over()
        if self._counts[self._key(address)] < self._per_address and self._all < self._in_all:
            return 0
        return max(1, math.ceil(self._began + self._window_s - self._now()))

    def count(self, address: str) -> None:
        """A try that failed, or has yet to succeed."""
        self._turn_over()
        self._counts[self._key(address)] += 1
        self._all += 1

    def take_back(self, address: str) -> None:
        """The try that was counted has succeeded."""
        key = self._key(address)
        if self._counts[key]:
            self._counts[key] -= 1
            self._all -= 1

    def _turn_over(self) -> None:
        now = self._now()
        if now - self._began >= self._window_s:
            self._began = now
            self._counts.clear()
            self._all = 0

    def _key(self, address: str) -> str:
        key = _site_of(address)
        return key if key in self._counts or len(self._counts) < TRIES_ADDRESSES_MAX else _OTHERS


def _site_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(found), _SITE_BITS), strict=False))
    return str(found)
