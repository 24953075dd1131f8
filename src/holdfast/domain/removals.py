"""Replay which turns were removed together, and which are versions of the same message.

Turns form a tree: the parent of a turn is the turn that was last when it was accepted. The live turns are one
path through it. All of it follows from the turns' rows and the few events that removed or restored turns.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.domain import facts as f
from holdfast.domain.codec import Event
from holdfast.domain.ids import Seq, TurnId
from holdfast.domain.ranges import numbers_in
from holdfast.domain.rows import TurnRow


class Removal(msgspec.Struct, frozen=True):
    """Turns that one event removed. `replaced`: another version of the first one took their place."""

    seq: Seq
    turns: tuple[int, ...]
    replaced: bool


class History:
    """The tree of turns, replayed. `removed` has the removal of each turn that can be restored."""

    def __init__(self, turns: Sequence[TurnRow], removals: Sequence[Event]) -> None:
        self._rows = {row.turn: row for row in turns if row.status not in ("steered", "moved")}
        self._numbers = {row.id: row.turn for row in self._rows.values()}
        self._parents: dict[int, int] = {}
        self._live: list[int] = []
        self.removed: dict[int, Removal] = {}
        steps: list[TurnRow | Event] = [*self._rows.values(), *removals]
        for step in sorted(steps, key=lambda each: each.seq):
            if isinstance(step, TurnRow):
                self._parents[step.turn] = self._live[-1] if self._live else 0
                self._live.append(step.turn)
            else:
                self._replay(step)

    def number(self, turn_id: TurnId) -> int | None:
        """Return the number of a turn that is or was part of the conversation."""
        return self._numbers.get(turn_id)

    def last_undone(self) -> int | None:
        """Return the first of the turns that a person removed last, without replacing them."""
        undone = [removal for removal in self.removed.values() if not removal.replaced]
        return max(undone, key=lambda each: each.seq).turns[0] if undone else None

    def path_through(self, turn: int) -> list[int]:
        """Return the turns that are live once `turn` is back: its ancestors, and those removed with it."""
        removal = self.removed.get(turn)
        path = [later for later in removal.turns if later > turn] if removal is not None else []
        while turn:
            path.append(turn)
            turn = self._parents[turn]
        return sorted(path)

    def versions(self) -> Mapping[int, tuple[TurnId, ...]]:
        """Return the versions of each message that has several, oldest first, by the turn of each version."""
        groups: dict[int, list[int]] = {}
        for number in sorted(self._rows):
            groups.setdefault(self.first_version(number), []).append(number)
        several = [tuple(group) for group in groups.values() if len(group) > 1]
        return {turn: tuple(self._rows[each].id for each in group) for group in several for turn in group}

    def first_version(self, turn: int) -> int:
        """Return the turn that `turn` and everything in between replaced."""
        while (before := self._rows[turn].replaces) is not None and before in self._numbers:
            turn = self._numbers[before]
        return turn

    def _replay(self, event: Event) -> None:
        match event.fact:
            case f.TurnsUndone(from_turn=first, reason=reason):
                self._remove(event.seq, first, reason != "undo")
            case f.TurnsRestored(turns=turns, from_turn=first, reason=reason):
                if first:
                    self._remove(event.seq, first, reason == "version")
                self._restore(numbers_in(turns))
            case f.SessionCleared(through_turn=last):
                self._live = [turn for turn in self._live if turn > last]
                self.removed.clear()

    def _remove(self, seq: Seq, first: int, replaced: bool) -> None:
        at = bisect_left(self._live, first)
        removal = Removal(seq, tuple(self._live[at:]), replaced)
        del self._live[at:]
        self.removed |= dict.fromkeys(removal.turns, removal)

    def _restore(self, turns: Iterable[int]) -> None:
        for turn in turns:
            self.removed.pop(turn, None)
            self._live.append(turn)
        self._live.sort()
