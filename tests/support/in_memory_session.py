"""An in-memory session for tests of the pure core: its events and its projected rows."""

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.domain.clock import FakeClock
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, UnknownFact, encode
from holdfast.domain.ids import IdGenerator, RunId, Seq, SessionId
from holdfast.domain.state.projections import project
from holdfast.domain.state.rows import MessageRow, RunRow, ToolRow
from holdfast.domain.state.session_state import InMemorySessionState

SESSION = SessionId("s_0000000000000001")


class PageMessage(msgspec.Struct, frozen=True):
    """A row with its events, as a page of the store has it."""

    row: MessageRow
    live: bool
    events: tuple[Event, ...]


class InMemoryJournal:
    """Append facts as a store does: numbered, encoded, projected."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._random_bits = 0
        self.ids = IdGenerator(self.clock, self._next_random_bits)
        self.book: InMemorySessionState = _JournalState(self)
        self.events: list[Event] = []
        self.head = 0

    def append(self, *facts: f.AnyFact | UnknownFact) -> list[Event]:
        stored: list[Event] = []
        for fact in facts:
            self.head += 1
            event = Event(self.head, self.clock.now_ms(), *encode(fact))
            # Deltas touch no row; everything else is read back from its bytes, as a store's fold would.
            if event.kind not in f.DELTA_KINDS:
                project(self.book, SESSION, event.seq, event.at, event.fact)
            stored.append(event)
        self.events += stored
        return stored

    def run(self, run_id: RunId) -> RunRow:
        return self.book.runs[run_id]

    def written(self, row: MessageRow) -> Sequence[Event]:
        """Return the events of a message without a body: its opening, then its deltas."""
        return [e for e in self.events if e.seq == row.first_seq or _is_delta_of(e, row)]

    def pages(self) -> list[PageMessage]:
        by_seq = {event.seq: event for event in self.events}
        return [
            PageMessage(row, self._is_live(row), tuple(self._content(row, by_seq)))
            for _, row in sorted(self.book.messages.items())
        ]

    def open_tools(self) -> list[ToolRow]:
        return [tool for tool in self.book.tools.values() if tool.state != "settled"]

    def prune(self) -> list[Event]:
        """Return what remains once the deltas of every settled body are pruned."""
        settled = {row.id for row in self.book.messages.values() if row.body_seq}
        return [e for e in self.events if not (e.kind in f.DELTA_KINDS and _subject(e) in settled)]

    def _content(self, row: MessageRow, by_seq: dict[int, Event]) -> Iterable[Event]:
        return [by_seq[row.body_seq]] if row.body_seq else self.written(row)

    def _is_live(self, row: MessageRow) -> bool:
        turn = self.book.turn(row.turn)
        return turn is not None and turn.status == "live"

    def _next_random_bits(self, bits: int) -> int:
        self._random_bits += 1
        return self._random_bits


class _JournalState(InMemorySessionState):
    """A state that knows its journal, as a store's view does."""

    def __init__(self, journal: InMemoryJournal) -> None:
        super().__init__()
        self._journal = journal

    def message_events(self, row: MessageRow) -> Sequence[Event]:
        return self._journal.written(row)

    def removals(self) -> Sequence[Event]:
        kinds = ("turns_undone", "turns_restored", "session_cleared")
        return [event for event in self._journal.events if event.kind in kinds]

    def completions(self, after: Seq) -> Sequence[Event]:
        return [e for e in self._journal.events if e.kind == "run_completed" and e.seq > after]


def _subject(event: Event) -> str:
    fact = event.fact
    if isinstance(fact, f.ToolOutputAppended):
        return fact.call_id
    if isinstance(fact, f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended):
        return fact.message_id
    return ""  # From a newer program: nobody here can say what it belongs to.


def _is_delta_of(event: Event, row: MessageRow) -> bool:
    return event.kind in f.DELTA_KINDS and event.seq > row.first_seq and _subject(event) == row.id
