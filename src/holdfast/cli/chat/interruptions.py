"""Track interrupted answers and their notices, with the same text and timing as on the page.

A notice is not printed while it can still change, which it can until something follows the interruption.
"""

from collections.abc import Callable

import msgspec

from holdfast.domain.state.rows import MessageStatus
from holdfast.domain.transcript.labels import CONTINUED_LABEL, NOTICES


class Interruption(msgspec.Struct):
    """One interruption that nothing has followed yet."""

    run_id: str
    turn: int
    place: int
    status: MessageStatus = "interrupted"


class Interruptions:
    """The interruptions of a conversation whose notices are not printed yet, oldest first."""

    def __init__(self) -> None:
        self._open: list[Interruption] = []

    def add(self, interruption: Interruption) -> None:
        self._open.append(interruption)

    def current_notices(self, awaiting_resume: set[str]) -> list[str]:
        """Return their current notices, except of runs whose question already says it."""
        return [
            NOTICES[interruption.status]
            for interruption in self._open
            if interruption.status != "interrupted" or interruption.run_id not in awaiting_resume
        ]

    def set_status(self, turn: int, place: int, status: MessageStatus) -> bool:
        """Change the status of one; return False if its notice is already printed."""
        found = [entry for entry in self._open if (entry.turn, entry.place) == (turn, place)]
        for interruption in found:
            interruption.status = status
        return bool(found)

    def resolve_continued(self, turn: int, place: int) -> list[str]:
        """Remove the interruptions before `place`, where the answer goes on; return their final notices."""
        resolved = self._remove_matching(lambda entry: entry.turn == turn and entry.place < place)
        return [continuation_notice(interruption.status) for interruption in resolved]

    def resolve_ended(self, run_id: str) -> list[str]:
        """Remove the interruptions of a run that has ended; return their final notices."""
        resolved = self._remove_matching(lambda entry: entry.run_id == run_id)
        return [NOTICES[interruption.status] for interruption in resolved]

    def _remove_matching(self, matches: Callable[[Interruption], bool]) -> list[Interruption]:
        removed = [interruption for interruption in self._open if matches(interruption)]
        self._open = [interruption for interruption in self._open if not matches(interruption)]
        return removed


def continuation_notice(status: MessageStatus) -> str:
    """Return the notice of an interruption after which the answer has continued."""
    return CONTINUED_LABEL if status == "interrupted" else f"{NOTICES[status]} · {CONTINUED_LABEL}"
