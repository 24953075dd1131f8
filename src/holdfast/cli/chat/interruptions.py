"""Answers that stopped with their server: what is said of each, in the page's words and when it says them.

While nothing has come after a stop, what is said of it can change, so it is not printed.
"""

from collections.abc import Callable

import msgspec

from holdfast.domain.state.rows import MessageStatus
from holdfast.domain.transcript.labels import CONTINUED, NOTICES


class Stop(msgspec.Struct):
    """One stop that nothing has come after."""

    run_id: str
    turn: int
    place: int
    status: MessageStatus = "interrupted"


class Stops:
    """The stops of a conversation that are not printed yet, the oldest first."""

    def __init__(self) -> None:
        self._open: list[Stop] = []

    def begin(self, stop: Stop) -> None:
        self._open.append(stop)

    def standing(self, asked: set[str]) -> list[str]:
        """What is to be read of them now; nothing of those that a question says already."""
        return [
            NOTICES[stop.status]
            for stop in self._open
            if stop.status != "interrupted" or stop.run_id not in asked
        ]

    def change(self, turn: int, place: int, status: MessageStatus) -> bool:
        """Say something else of one; False if that is printed."""
        found = [stop for stop in self._open if (stop.turn, stop.place) == (turn, place)]
        for stop in found:
            stop.status = status
        return bool(found)

    def went_on(self, turn: int, place: int) -> list[str]:
        """Something has come at that place: what is said for good of the stops before it."""
        taken = self._taken(lambda stop: stop.turn == turn and stop.place < place)
        return [continued(stop.status) for stop in taken]

    def ended(self, run_id: str) -> list[str]:
        """The work on an answer is over, and nothing came: what is said for good."""
        return [NOTICES[stop.status] for stop in self._taken(lambda stop: stop.run_id == run_id)]

    def _taken(self, ends: Callable[[Stop], bool]) -> list[Stop]:
        taken = [stop for stop in self._open if ends(stop)]
        self._open = [stop for stop in self._open if not ends(stop)]
        return taken


def continued(status: MessageStatus) -> str:
    """What is said of a stop that something has come after."""
    return CONTINUED if status == "interrupted" else f"{NOTICES[status]} · {CONTINUED}"
