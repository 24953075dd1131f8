"""Replay which turns were removed together, and which are versions of the same message.

Turns form a tree: the parent of a turn is the turn that was last when it was accepted. The live turns are one
path through it. All of it follows from the turns' rows and the few events that removed or restored turns.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.ids import Seq, TurnId
from holdfast.domain.ranges import clip_ranges, expand_ranges
from holdfast.domain.state.rows import TurnRow


class TurnRemoval(msgspec.Struct, frozen=True):
    """Turns that one event removed, and the live turn that they followed (0: none).

    `replaced`: another version of the first one took their place.
    """

    seq: Seq
    turns: tuple[int, ...]
    replaced: bool
    after: int


class TurnHistory:
    """The tree of turns, replayed. `removed` has the removal of each turn that can be restored."""

    def __init__(self, turns: Sequence[TurnRow], removals: Sequence[Event]) -> None:
        self._rows = {row.turn: row for row in turns if row.status not in ("steered", "moved")}
        self._numbers = {row.id: row.turn for row in self._rows.values()}
        self._first: dict[int, int] = {}
        for number, row in sorted(self._rows.items()):
            before = self._numbers.get(row.replaces) if row.replaces is not None else None
            self._first[number] = self._first.get(before, number) if before is not None else number
        self._parents: dict[int, int] = {}
        self._live: list[int] = []
        self.removed: dict[int, TurnRemoval] = {}
        steps: list[TurnRow | Event] = [*self._rows.values(), *removals]
        for step in sorted(steps, key=lambda step: step.seq):
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
        return max(undone, key=lambda removal: removal.seq).turns[0] if undone else None

    def path_through(self, turn: int) -> list[int]:
        """Return the turns that are live once `turn` is back: its ancestors, and those removed with it."""
        removal = self.removed.get(turn)
        path = [later for later in removal.turns if later > turn] if removal is not None else []
        while turn:
            path.append(turn)
            turn = self._parents[turn]
        return sorted(path)

    def versions(self, shown: Iterable[int]) -> Mapping[int, tuple[TurnId, ...]]:
        """Return the versions of each message that has several, oldest first.

        Each list is there once: by the first of its turns among those that are `shown`.
        """
        groups: dict[int, list[int]] = {}
        for number, first in sorted(self._first.items()):
            groups.setdefault(first, []).append(number)
        several = {first: group for first, group in groups.items() if len(group) > 1}
        found: dict[int, tuple[TurnId, ...]] = {}
        for turn in shown:
            group = several.pop(self._first.get(turn, turn), ())
            if group:
                found[turn] = tuple(self._rows[number].id for number in group)
        return found

    def first_version(self, turn: int) -> int:
        """Return the turn that `turn` and everything in between replaced."""
        return self._first[turn]

    def _replay(self, event: Event) -> None:
        match event.fact:
            case f.TurnsUndone(from_turn=first, reason=reason):
                self._remove(event.seq, first, reason != "undo")
            case f.TurnsRestored(turns=turns, from_turn=first, reason=reason):
                if first:
                    self._remove(event.seq, first, reason == "version")
                self._restore(expand_ranges(clip_ranges(turns, max(self._rows, default=0))))
            case f.SessionCleared(through_turn=last):
                self._live = [turn for turn in self._live if turn > last]
                self.removed.clear()

    def _remove(self, seq: Seq, first: int, replaced: bool) -> None:
        at = bisect_left(self._live, first)
        removal = TurnRemoval(seq, tuple(self._live[at:]), replaced, self._live[at - 1] if at else 0)
        del self._live[at:]
        self.removed |= dict.fromkeys(removal.turns, removal)

    def _restore(self, turns: Sequence[int]) -> None:
        back = {turn: self.removed.pop(turn) for turn in turns if turn in self.removed}
        for removal in {removal.turns: removal for removal in back.values()}.values():
            self._split(removal, set(back))
        self._live = sorted([*self._live, *back])

    def _split(self, removal: TurnRemoval, restored: set[int]) -> None:
        """Make the turns that did not come back a removal of their own: no version leads to them any more."""
        rest = tuple(turn for turn in removal.turns if turn not in restored)
        last = max(restored.intersection(removal.turns))
        self.removed |= dict.fromkeys(rest, TurnRemoval(removal.seq, rest, replaced=False, after=last))
