"""Names of things: short, time-ordered, safe in a URL, told apart by their first letter.

An id is 42 bits of milliseconds and 38 bits of chance, written as 16 characters of lower-case
base 32 behind a prefix: sorting ids sorts what they name by age.
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
"""An event's place among all events of a store; grows, with gaps."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_BITS, _RANDOM_BITS, _CHARS = 42, 38, 16
_SHAPE = re.compile(r"[a-z]_[0-9a-hjkmnp-tv-z]{16}")


def is_id(text: str) -> bool:
    """Whether `text` has the shape of an id; says nothing of whether it names anything."""
    return _SHAPE.fullmatch(text) is not None


class IdGenerator:
    """Mints ids; `chance(bits)` is passed in so that a test can replay them."""

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
        """The key of a stretch that memory is told of."""
        return self._mint("o")

    def token(self) -> str:
        return self._mint("k")

    def _mint(self, prefix: str) -> str:
        ms = self._clock.now_ms() & ((1 << _TIME_BITS) - 1)
        number = ms << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
        digits = (_ALPHABET[number >> shift & 31] for shift in range(5 * (_CHARS - 1), -1, -5))
        return f"{prefix}_{''.join(digits)}"
