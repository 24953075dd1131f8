"""A limit on failed sign-in attempts."""

import ipaddress
import math
from collections import Counter
from collections.abc import Callable

from holdfast.domain.limits import (
    LOGIN_ATTEMPTS_ADDRESSES_MAX,
    LOGIN_ATTEMPTS_MAX,
    LOGIN_ATTEMPTS_PER_ADDRESS_MAX,
    LOGIN_ATTEMPTS_WINDOW_S,
)

_OTHERS = "others"
_NETWORK_BITS = 64
"""One owner of an IPv6 address usually has all addresses with these leading bits."""


class LoginThrottle:
    """Count failed attempts per address and in total. `now` returns seconds from any starting point."""

    def __init__(
        self,
        now: Callable[[], float],
        per_address_max: int = LOGIN_ATTEMPTS_PER_ADDRESS_MAX,
        total_max: int = LOGIN_ATTEMPTS_MAX,
        window_s: float = LOGIN_ATTEMPTS_WINDOW_S,
    ) -> None:
        self._now = now
        self._per_address_max = per_address_max
        self._total_max = total_max
        self._window_s = window_s
        self._began = now()
        self._counts: Counter[str] = Counter()
        self._total = 0

    def retry_after_s(self, address: str) -> int:
        """Return the seconds until this address may try again; 0 if it may now."""
        self._reset_if_window_over()
        if self._counts[self._key(address)] < self._per_address_max and self._total < self._total_max:
            return 0
        return max(1, math.ceil(self._began + self._window_s - self._now()))

    def record_attempt(self, address: str) -> None:
        """Count an attempt that failed or has not succeeded yet."""
        self._reset_if_window_over()
        self._counts[self._key(address)] += 1
        self._total += 1

    def undo_attempt(self, address: str) -> None:
        """Uncount an attempt that has succeeded."""
        key = self._key(address)
        if self._counts[key]:
            self._counts[key] -= 1
            self._total -= 1

    def _reset_if_window_over(self) -> None:
        now = self._now()
        if now - self._began >= self._window_s:
            self._began = now
            self._counts.clear()
            self._total = 0

    def _key(self, address: str) -> str:
        key = _network_of(address)
        return key if key in self._counts or len(self._counts) < LOGIN_ATTEMPTS_ADDRESSES_MAX else _OTHERS


def _network_of(address: str) -> str:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
        return str(ipaddress.ip_network((int(found), _NETWORK_BITS), strict=False))
    return str(found)
