"""Saying of an answer in a chat that it counts no more: its turn was taken back, or is answered again."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.channels.streaming_reply import GOES_ON
from holdfast.domain.chats import NewDelivery, Outgoing

_MARKS: Mapping[str, str] = MappingProxyType({
    "undo": "\n\n*Removed.*",
    "edit": "\n\n*Removed.*",
    "retry": "\n\n*Answered again below.*",
})  # fmt: skip
_ENDS = (*(mark.lstrip() for mark in _MARKS.values()), "*Taken back.*")
"""Versions before format 6 wrote the last one."""


class Undone(msgspec.Struct, frozen=True):
    """Turns that are live no more, from one on; `through` is the last of them, if there were more since."""

    from_turn: int
    reason: Literal["undo", "edit", "retry"]
    through: int | None = None
    restored: frozenset[int] = frozenset()

    def holds(self, turn: int) -> bool:
        is_later = self.through is not None and turn > self.through
        return self.from_turn <= turn and not is_later and turn not in self.restored

    def without(self, turns: Iterable[int]) -> "Undone":
        """The same, now that `turns` were restored."""
        return replace(self, restored=self.restored.union(turns))

    def before(self, turn: int) -> "Undone":
        """The same, now that `turn` has begun."""
        return self if self.through is not None else replace(self, through=turn - 1)

    def marked(self, body: Outgoing) -> Outgoing:
        """What a message says from then on. Marked once, it stays as it is."""
        if body.is_taken_back:
            return body
        words = body.text.removesuffix(GOES_ON).rstrip()
        # What ends so by its own words, or was marked before that was noted, says it already.
        mark = "" if words.endswith(_ENDS) else _MARKS[self.reason]
        return replace(
            body, text=(words + mark).lstrip(), buttons=(), is_taken_back=True, before_mark=words.lstrip()
        )

    def among(self, said: list[NewDelivery], turns: Mapping[str, int]) -> list[NewDelivery]:
        """Those answers of `said` that are of these turns, marked. `turns`: of each message."""
        return [replace(each, body=self.marked(each.body)) for each in _answers(said, turns, self.holds)]


class Restored(msgspec.Struct, frozen=True):
    """Turns that are live again."""

    turns: frozenset[int]

    def among(self, said: list[NewDelivery], turns: Mapping[str, int]) -> list[NewDelivery]:
        """Return the answers of these turns in `said` that were marked, without their mark."""
        found = _answers(said, turns, self.turns.__contains__)
        return [replace(each, body=_unmarked(each.body)) for each in found if each.body.before_mark]


def _answers(
    said: list[NewDelivery], turns: Mapping[str, int], holds: Callable[[int], bool]
) -> list[NewDelivery]:
    return [
        each for each in said if each.kind == "answer" and each.source in turns and holds(turns[each.source])
    ]


def _unmarked(body: Outgoing) -> Outgoing:
    return replace(body, text=body.before_mark, is_taken_back=False, before_mark="")
