"""Mark a chat's answers whose turns were removed or retried."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.channels.streaming_reply import CONTINUATION_MARK
from holdfast.domain.chats import NewDelivery, OutboundMessage

_MARKS: Mapping[str, str] = MappingProxyType({
    "undo": "\n\n*Removed.*",
    "edit": "\n\n*Removed.*",
    "retry": "\n\n*Answered again below.*",
})  # fmt: skip
_MARK_ENDINGS = (*(mark.lstrip() for mark in _MARKS.values()), "*Taken back.*")
"""Versions before format 6 wrote the last one."""


class RemovedTurns(msgspec.Struct, frozen=True):
    """Removed turns from `from_turn` on; `through` is the last of them once a later turn began."""

    from_turn: int
    reason: Literal["undo", "edit", "retry"]
    through: int | None = None
    restored: frozenset[int] = frozenset()

    def contains(self, turn: int) -> bool:
        is_later = self.through is not None and turn > self.through
        return self.from_turn <= turn and not is_later and turn not in self.restored

    def with_restored(self, turns: Iterable[int]) -> "RemovedTurns":
        """Return the same without `turns`, which were restored."""
        return replace(self, restored=self.restored.union(turns))

    def closed_before(self, turn: int) -> "RemovedTurns":
        """Return the same, ended before `turn`, which has begun."""
        return self if self.through is not None else replace(self, through=turn - 1)

    def mark_removed(self, body: OutboundMessage) -> OutboundMessage:
        """Return a message with the mark; a marked one is returned unchanged."""
        if body.is_taken_back:
            return body
        text = body.text.removesuffix(CONTINUATION_MARK).rstrip()
        # The text may end with a mark of its own, or of a version that did not set `is_taken_back`.
        mark = "" if text.endswith(_MARK_ENDINGS) else _MARKS[self.reason]
        return replace(
            body, text=(text + mark).lstrip(), buttons=(), is_taken_back=True, before_mark=text.lstrip()
        )

    def marked_answers(self, deliveries: list[NewDelivery], turns: Mapping[str, int]) -> list[NewDelivery]:
        """Return the answers of these turns, marked. `turns` maps each message to its turn."""
        return [
            replace(each, body=self.mark_removed(each.body))
            for each in _answers(deliveries, turns, self.contains)
        ]


class RestoredTurns(msgspec.Struct, frozen=True):
    """Restored turns."""

    turns: frozenset[int]

    def marked_answers(self, deliveries: list[NewDelivery], turns: Mapping[str, int]) -> list[NewDelivery]:
        """Return the marked answers of these turns, without their mark."""
        found = _answers(deliveries, turns, self.turns.__contains__)
        return [replace(each, body=_unmarked(each.body)) for each in found if each.body.before_mark]


def _answers(
    deliveries: list[NewDelivery], turns: Mapping[str, int], contains: Callable[[int], bool]
) -> list[NewDelivery]:
    return [
        each
        for each in deliveries
        if each.kind == "answer" and each.source in turns and contains(turns[each.source])
    ]


def _unmarked(body: OutboundMessage) -> OutboundMessage:
    return replace(body, text=body.before_mark, is_taken_back=False, before_mark="")
