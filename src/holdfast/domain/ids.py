"""Generate ids: short, time-ordered, safe in a URL, with a first letter for the type.

An id is 42 bits of milliseconds and 38 random bits, written as 16 characters of lower-case base 32 after a
prefix: ids sort by age.
"""

import re
import secrets
from collections.abc import Callable
from typing import NewType, TypeAlias

from holdfast.domain.clock import Clock

SessionId = NewType("SessionId", str)
TurnId = NewType("TurnId", str)
RunId = NewType("RunId", str)
MessageId = NewType("MessageId", str)
CallId = NewType("CallId", str)
ProcessId = NewType("ProcessId", str)

Seq: TypeAlias = int
"""An event's number in its session, dense from 1."""
Position: TypeAlias = int
"""An event's position among all events of a store; it grows, with gaps."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_BITS, _RANDOM_BITS, _CHARS = 42, 38, 16
_SHAPE = re.compile(r"[a-z]_[0-9a-hjkmnp-tv-z]{16}")


def is_id(text: str) -> bool:
    """Return whether `text` has the form of an id, whether or not it exists."""
    return _SHAPE.fullmatch(text) is not None


class IdGenerator:
    """Mint ids; a test passes its own `random_bits` to replay them."""

    def __init__(self, clock: Clock, random_bits: Callable[[int], int] = secrets.randbits) -> None:
        self._clock = clock
        self._random_bits = random_bits

    def session(self) -> SessionId:
        return SessionId(self._mint("s"))

    def turn(self) -> TurnId:
        return TurnId(self._mint("t"))

    def run(self) -> RunId:
        return RunId(self._mint("r"))

    def message(self) -> MessageId:
        return MessageId(self._mint("m"))

    def call(self) -> CallId:
        return CallId(self._mint("c"))

    def rule(self) -> str:
        return self._mint("u")

    def process(self) -> ProcessId:
        return ProcessId(self._mint("p"))

    def memory(self) -> str:
        return self._mint("n")

    def commit_key(self) -> str:
        """Return a new idempotency key for a commit to memory."""
        return self._mint("o")

    def token(self) -> str:
        return self._mint("k")

    def _mint(self, prefix: str) -> str:
        ms = self._clock.now_ms() & ((1 << _TIME_BITS) - 1)
        number = ms << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
        digits = (_ALPHABET[number >> shift & 31] for shift in range(5 * (_CHARS - 1), -1, -5))
        return f"{prefix}_{''.join(digits)}"
