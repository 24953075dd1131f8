"""Faults of requests to Telegram's Bot API; see `tests/support/telegram_api.py`."""

from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """A fault of one request. `is_done`: the request is executed before it fails."""

    kind: Literal["silent", "dropped", "refused", "slow"]
    is_done: bool = False
    status: int = 500
    words: str = "Internal Server Error"
    seconds: float = 0.0
    parameters: Json = field(default_factory=dict)


NO_REPLY_AFTER = Fault("silent", is_done=True)
"""Accept the request and never answer."""
NO_REPLY = Fault("silent")
DROPPED_AFTER = Fault("dropped", is_done=True)
DROPPED = Fault("dropped")
BROKEN = Fault("refused")
BROKEN_AFTER = Fault("refused", is_done=True, status=502, words="Bad Gateway")


def too_many_requests(retry_after_s: int) -> Fault:
    words = f"Too Many Requests: retry after {retry_after_s}"
    return Fault("refused", status=429, words=words, parameters={"retry_after": retry_after_s})


def slow(seconds: float) -> Fault:
    return Fault("slow", is_done=True, seconds=seconds)
