"""Answers that stopped with their server: what is said of each, in the page's words and when it says them.

While nothing has come after a stop, what is said of it can change, so it is not printed.
"""

from collections.abc import Callable

import msgspec

from holdfast.domain.state.rows import MessageStatus
from holdfast.domain.transcript.labels import CONTINUED_LABEL, NOTICES


class Interruption(msgspec.Struct):
    """One stop that nothing has come after."""

    run_id: str
    turn: int
    place: int
    status: MessageStatus = "interrupted"


class Interruptions:
    """The stops of a conversation that are not printed yet, the oldest first."""

    def __init__(self) -> None:
        self._open: list[Interruption] = []

    def add(self, interruption: Interruption) -> None:
        self._open.append(interruption)

    def current_notices(self, awaiting_resume: set[str]) -> list[str]:
        """What is to be read of them now; nothing of those that a question says already."""
        return [
            NOTICES[stop.status]
            for stop in self._open
            if stop.status != "interrupted" or stop.run_id not in awaiting_resume
        ]

    def set_status(self, turn: int, endpoint: int, status: MessageStatus) -> bool:
        """Say something else of one; False if that is printed."""
        found = [stop for stop in self._open if (stop.turn, stop.place) == (turn, endpoint)]
        for stop in found:
            stop.status = status
        return bool(found)

    def resolve_continued(self, turn: int, endpoint: int) -> list[str]:
        """Something has come at that place: what is said for good of the stops before it."""
        resolved = self._remove_matching(lambda stop: stop.turn == turn and stop.place < endpoint)
        return [continuation_notice(stop.status) for stop in resolved]

    def resolve_ended(self, run_id: str) -> list[str]:
        """The work on an answer is over, and nothing came: what is said for good."""
        return [NOTICES[stop.status] for stop in self._remove_matching(lambda stop: stop.run_id == run_id)]

    def _remove_matching(self, matches: Callable[[Interruption], bool]) -> list[Interruption]:
        removed = [stop for stop in self._open if matches(stop)]
        self._open = [stop for stop in self._open if not matches(stop)]
        return removed


def continuation_notice(status: MessageStatus) -> str:
    """What is said of a stop that something has come after."""
    return CONTINUED_LABEL if status == "interrupted" else f"{NOTICES[status]} · {CONTINUED_LABEL}"
