"""Fold events into the readable conversation, ordered by (turn, place).

The fold starts empty or from pages of rows with their events, and continues with later events: both give the
same result. Text is stored once, and adding an event costs the same for any length.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from holdfast.domain.clock import Instant
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, UnknownFact
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.events.stream_fold import OutputFold, StreamFold
from holdfast.domain.ids import CallId, RunId
from holdfast.domain.ranges import clip_ranges, expand_ranges
from holdfast.domain.state.rows import MessageRow, MessageStatus, ToolRow, ToolState

EntryKey = tuple[int, int]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message in its current state. `at` is the time of its body, or else of its beginning.

    For a tool's entry, `id` is the call and `message_id` the message that made it; `state` is its state in
    the ledger while it is open; `arguments` is set if a person changed what the model wrote; `ms` is its run
    time. For an answer, `model` is its author, `weight` is the estimated tokens of its request and the
    provider's count, and `began_at` is when it was requested.
    """

    turn: int
    place: int
    id: str
    role: f.Role
    status: MessageStatus
    at: Instant
    parts: tuple[AnyPart, ...] = ()
    run_id: RunId | None = None
    late: bool = False
    continues: str | None = None
    message_id: str = ""
    name: str = ""
    state: ToolState | None = None
    outcome: f.ToolOutcome | None = None
    arguments: str = ""
    model: str = ""
    ms: int = 0
    weight: f.RequestTokens = ()
    began_at: Instant = 0


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """A turn's entries in the order of their places. `id` and `run_id` come with its first entry."""

    turn: int
    entries: tuple[Entry, ...]
    live: bool
    id: str = ""
    run_id: RunId | None = None


class Transcript(msgspec.Struct, frozen=True, omit_defaults=True):
    """The turns in order, with the summaries and run contexts that the model's context needs."""

    turns: tuple[Turn, ...] = ()
    compactions: tuple[f.SessionCompacted, ...] = ()
    prepared: tuple[f.ContextPrepared, ...] = ()
    first: int = 0
    """The first turn that was read; a summary covers those before it."""


class MessageWithEvents(Protocol):
    """A row and its events, as in a store's page: its body, or its opening and its deltas."""

    @property
    def row(self) -> MessageRow: ...
    @property
    def live(self) -> bool: ...
    @property
    def events(self) -> Sequence[Event]: ...


class _Slot(msgspec.Struct):
    """An entry that may still change: without a body, its parts come from the stream."""

    entry: Entry
    stream: StreamFold | OutputFold | None = None

    def current(self) -> Entry:
        return self.entry if self.stream is None else replace(self.entry, parts=self.stream.parts())


class TranscriptFold:
    """Fold a conversation; `add` each event once, in order."""

    def __init__(self) -> None:
        self._turns: dict[int, dict[int, _Slot]] = {}
        self._accepted: dict[int, f.TurnAccepted] = {}
        self._live: set[int] = set()
        self._entry_keys: dict[str, EntryKey] = {}
        self._streaming: dict[RunId, set[EntryKey]] = {}
        self._compactions: list[f.SessionCompacted] = []
        self._void_compactions: list[f.SessionCompacted] = []
        self._all_compactions: list[f.SessionCompacted] = []
        self._last_turn = 0
        self._prepared: dict[RunId, f.ContextPrepared] = {}
        self._first = 0
        self._base_summary: f.SessionCompacted | None = None

    def begin_at(self, turn: int, summary: Event | None) -> None:
        """Start at `turn`, with nothing read before it but the `summary` that covers it, if any."""
        self._first = turn
        if summary is not None and isinstance(summary.fact, f.SessionCompacted):
            self._base_summary = summary.fact
            self._compactions.insert(0, summary.fact)
            self._all_compactions.insert(0, summary.fact)

    @property
    def lacks_turns(self) -> bool:
        """Return whether the initial summary is void, so that the turns it covers are missing."""
        return self._base_summary is not None and self._base_summary not in self._compactions

    def add(self, event: Event) -> None:
        """Add the next event; an unknown one changes nothing."""
        fact = event.fact
        match fact:
            case UnknownFact():
                pass
            case f.SessionCompacted():
                self._compactions.append(fact)
                self._all_compactions.append(fact)
            case f.ContextPrepared():
                self._prepared[fact.run_id] = fact
            case f.TurnsUndone():
                self._remove_from(fact.from_turn)
            case f.TurnsRestored():
                if fact.from_turn:
                    self._remove_from(fact.from_turn)
                self._restore(fact.turns)
            case f.SessionCleared():
                self._live = {turn for turn in self._live if turn > fact.through_turn}
                self._compactions = [c for c in self._compactions if _start(c) > fact.through_turn]
            case f.SessionContinued():
                self._remove_continued(fact.from_turn)
            case f.TurnAccepted():
                self._live.add(fact.turn)
                self._last_turn = max(self._last_turn, fact.turn)
                self._add_content(event, fact)
            case _:
                self._add_content(event, fact)
                self._change_entry(event, fact)

    def add_messages(self, messages: Iterable[MessageWithEvents], tools: Iterable[ToolRow] = ()) -> None:
        """Add rows with their events; `tools` gives the states of their open calls.

        Add pages before the events after their head; pages may come in any order.
        """
        states = {tool.id: tool.state for tool in tools}
        for message in messages:
            row = message.row
            self._last_turn = max(self._last_turn, row.turn)
            if message.live:
                self._live.add(row.turn)
            for event in message.events:
                # Apply only the row's own content: other rows carry their own state.
                self._add_content(event, event.fact)
            slot = self._slot(row.turn, row.place)
            if slot is None:
                opened_at = message.events[0].at if message.events else 0
                self._put(Entry(row.turn, row.place, row.id, row.role, row.status, opened_at))
                slot = self._turns[row.turn][row.place]
            slot.entry = replace(slot.entry, status=row.status, run_id=row.run_id, late=row.late)
            if row.status != "streaming" and row.run_id is not None:
                self._streaming.get(row.run_id, set()).discard((row.turn, row.place))
            if slot.entry.state not in (None, "settled"):
                slot.entry = replace(slot.entry, state=states.get(CallId(row.id), slot.entry.state))

    def transcript(self) -> Transcript:
        """Return the current conversation."""
        turns: list[Turn] = []
        for turn, slots in sorted(self._turns.items()):
            entries = tuple(slots[place].current() for place in sorted(slots))
            accepted = self._accepted.get(turn)
            named = (accepted.turn_id, accepted.run_id) if accepted is not None else ("", None)
            turns.append(Turn(turn, entries, turn in self._live, *named))
        prepared = tuple(self._prepared.values())
        return Transcript(tuple(turns), tuple(self._compactions), prepared, self._first)

    def _add_content(self, event: Event, fact: f.AnyFact | UnknownFact) -> None:
        match fact:
            case f.TextAppended() | f.ReasoningAppended() | f.ToolArgumentsAppended():
                stream = self._stream(fact.message_id)
                if isinstance(stream, StreamFold):
                    stream.add(fact, event.at)
            case f.ToolOutputAppended():
                stream = self._stream(fact.call_id)
                if isinstance(stream, OutputFold):
                    stream.add(fact, event.at)
            case f.ModelStepStarted() | f.ToolIntended():
                self._begin_entry(event, fact)
            case _:
                self._add_body(event, fact)

    def _begin_entry(self, event: Event, fact: f.ModelStepStarted | f.ToolIntended) -> None:
        if isinstance(fact, f.ModelStepStarted):
            entry = Entry(
                fact.turn, fact.place, fact.message_id, "assistant", "streaming", event.at,
                run_id=fact.run_id, continues=fact.continues, model=fact.model, began_at=event.at,
            )  # fmt: skip
            self._put(entry, StreamFold(event.at))
        else:
            entry = Entry(
                fact.turn, fact.place, fact.call_id, "tool", "streaming", event.at,
                run_id=fact.run_id, message_id=fact.message_id, name=fact.name, state="intended",
                arguments=fact.arguments if fact.edited else "",
            )  # fmt: skip
            self._put(entry, OutputFold(event.at))

    def _add_body(self, event: Event, fact: f.AnyFact | UnknownFact) -> None:
        match fact:
            case f.TurnAccepted():
                self._accepted[fact.turn] = fact
                self._put(Entry(fact.turn, 0, fact.message_id, "user", "settled", event.at, fact.parts))
            case f.TurnSteered():
                self._put(Entry(
                    fact.turn, fact.place, fact.message_id, "user", "settled", event.at, fact.parts,
                    fact.run_id,
                ))  # fmt: skip
            case f.MessageSettled():
                self._put(Entry(
                    fact.turn, fact.place, fact.message_id, fact.role, fact.status, event.at, fact.parts,
                    fact.run_id, fact.late, fact.continues, model=fact.model, weight=fact.weight,
                    began_at=fact.began_at,
                ))  # fmt: skip
            case f.ToolSettled():
                self._put(Entry(
                    fact.turn, fact.place, fact.call_id, "tool", fact.status, event.at, fact.parts,
                    fact.run_id, fact.late, None, fact.message_id, fact.name, "settled", fact.outcome,
                    fact.arguments, ms=fact.ms,
                ))  # fmt: skip
            case f.RunInterrupted():
                self._put(Entry(
                    fact.turn, fact.place, fact.message_id, "notice", "interrupted", event.at,
                    run_id=fact.run_id,
                ))  # fmt: skip

    def _change_entry(self, event: Event, fact: f.AnyFact) -> None:
        match fact:
            case f.RunCompleted() | f.RunCancelled() | f.RunFailed() | f.RunInterrupted():
                for turn, place in self._streaming.pop(fact.run_id, ()):
                    slot = self._turns[turn][place]
                    slot.entry = replace(slot.entry, status="interrupted")
            case f.RecoveryPending():
                self._update_notice(event, fact.turn, fact.place, "pending")
            case f.RecoveryFinished():
                self._update_notice(event, fact.turn, fact.place, "recovered" if fact.recovered else "final")
            case f.ToolStarted():
                self._set_tool_state(fact.call_id, "started")
            case f.ToolInDoubt():
                self._set_tool_state(fact.call_id, "in_doubt")
            case f.ToolResolved():
                self._set_tool_state(fact.call_id, "resolved")
            case f.TurnSteered():
                self._remove_steered(fact)

    def _remove_from(self, first: int) -> None:
        self._live = {turn for turn in self._live if turn < first}
        self._void_compactions += [c for c in self._compactions if _last(c) >= first]
        self._compactions = [c for c in self._compactions if _last(c) < first]

    def _restore(self, turns: f.Ranges) -> None:
        """Make the turns live again, and with them every summary whose last covered turn is live."""
        self._live |= set(expand_ranges(clip_ranges(turns, self._last_turn)))
        restored = [c for c in self._void_compactions if _last(c) in self._live]
        self._void_compactions = [c for c in self._void_compactions if c not in restored]
        self._compactions = sorted([*self._compactions, *restored], key=self._all_compactions.index)

    def _remove_steered(self, fact: f.TurnSteered) -> None:
        """Remove a steered message from the turn in which it was queued."""
        slot = self._slot(fact.from_turn, 0)
        if slot is None or slot.entry.id != fact.message_id or fact.from_turn == fact.turn:
            return
        self._live.discard(fact.from_turn)
        self._accepted.pop(fact.from_turn, None)
        del self._turns[fact.from_turn][0]
        if not self._turns[fact.from_turn]:
            del self._turns[fact.from_turn]

    def _remove_continued(self, first: int) -> None:
        """Remove the queued turns that moved to another session."""
        for turn in [turn for turn in self._live if first and turn >= first]:
            self._live.discard(turn)
            self._accepted.pop(turn, None)
            self._turns.pop(turn, None)

    def _put(self, entry: Entry, stream: StreamFold | OutputFold | None = None) -> None:
        place = (entry.turn, entry.place)
        before = self._slot(*place)
        if before is not None and before.entry.run_id is not None:
            self._streaming.get(before.entry.run_id, set()).discard(place)
        if entry.status == "streaming" and entry.run_id is not None:
            self._streaming.setdefault(entry.run_id, set()).add(place)
        self._entry_keys[entry.id] = place
        self._turns.setdefault(entry.turn, {})[entry.place] = _Slot(entry, stream)

    def _slot(self, turn: int, place: int) -> _Slot | None:
        return self._turns.get(turn, {}).get(place)

    def _find_slot(self, name: str) -> _Slot | None:
        slot = self._slot(*self._entry_keys.get(name, (0, 0)))
        return slot if slot is not None and slot.entry.id == name else None

    def _stream(self, name: str) -> StreamFold | OutputFold | None:
        slot = self._find_slot(name)
        return slot.stream if slot is not None else None

    def _update_notice(self, event: Event, turn: int, place: int, status: MessageStatus) -> None:
        slot = self._slot(turn, place)
        if slot is not None and slot.entry.role == "notice":
            slot.entry = replace(slot.entry, status=status, at=event.at)

    def _set_tool_state(self, call_id: str, state: ToolState) -> None:
        slot = self._find_slot(call_id)
        if slot is not None and slot.entry.state not in (None, "settled"):
            slot.entry = replace(slot.entry, state=state)


def _start(summary: f.SessionCompacted) -> int:
    return summary.covers[0][0] if summary.covers else 0


def _last(summary: f.SessionCompacted) -> int:
    return summary.covers[-1][1] if summary.covers else 0


def fold(events: Iterable[Event]) -> Transcript:
    """Return the conversation that follows from `events`."""
    transcript = TranscriptFold()
    for event in events:
        transcript.add(event)
    return transcript.transcript()
