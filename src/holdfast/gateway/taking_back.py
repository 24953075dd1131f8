"""Saying of an answer in a chat that it counts no more: its turn was taken back, or is answered again."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.domain.chats import NewDelivery, Outgoing
from holdfast.gateway.writing import GOES_ON

_MARKS: Mapping[str, str] = MappingProxyType({
    "undo": "\n\n*Taken back.*",
    "edit": "\n\n*Taken back.*",
    "retry": "\n\n*Answered again below.*",
})  # fmt: skip
_ENDS = tuple(mark.lstrip() for mark in _MARKS.values())


class Undone(msgspec.Struct, frozen=True):
    """Turns that are live no more, from one on; `through` is the last of them, if there were more since."""

    from_turn: int
    reason: Literal["undo", "edit", "retry"]
    through: int | None = None

    def holds(self, turn: int) -> bool:
        return self.from_turn <= turn and (self.through is None or turn <= self.through)

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
        return replace(body, text=(words + mark).lstrip(), buttons=(), is_taken_back=True)

    def among(self, said: list[NewDelivery], turns: Mapping[str, int]) -> list[NewDelivery]:
        """Those answers of `said` that are of these turns, marked. `turns`: of each message."""
        return [
            replace(each, body=self.marked(each.body))
            for each in said
            if each.kind == "answer" and each.source in turns and self.holds(turns[each.source])
        ]
