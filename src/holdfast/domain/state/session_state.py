"""A session's rows while events are applied to them.

Decisions read a `SessionStateView`; `projections.project` writes a `SessionState`. `InMemorySessionState` is
both, to fold a journal without a store; a store has its own, over its tables.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from holdfast.domain.events.codec import Event, UnknownFact
from holdfast.domain.events.facts import AnyFact
from holdfast.domain.ids import CallId, RunId, Seq
from holdfast.domain.state.rows import MessageRow, QueuedCommitRow, RunRow, SessionRow, ToolRow, TurnRow


class SessionStateView(Protocol):
    """The part of a session that a decision may read: rows by key, and the few that are open."""

    def session(self) -> SessionRow | None: ...
    def turn(self, turn: int) -> TurnRow | None: ...
    def turn_by_key(self, key: str) -> TurnRow | None: ...
    def live_turns(self, from_turn: int) -> Sequence[TurnRow]:
        """Return the live turns from `from_turn` on, oldest first."""

    def last_live_turn(self) -> TurnRow | None: ...
    def all_turns(self) -> Sequence[TurnRow]:
        """Return every turn, whatever its status, in order."""

    def removals(self) -> Sequence[Event]:
        """Return the events that undid, restored or cleared turns, in order."""

    def completions(self, after: Seq) -> Iterable[Event]:
        """Yield the events after `after` that completed a run, in order."""

    def run(self, run_id: RunId) -> RunRow | None: ...
    def open_runs(self) -> Sequence[RunRow]:
        """Return the runs that have not finished, in the order of their turns."""

    def tool(self, call_id: CallId) -> ToolRow | None: ...
    def open_tools(self, run_id: RunId) -> Sequence[ToolRow]:
        """Return the unsettled calls of a run, in the order of their places."""

    def message(self, turn: int, place: int) -> MessageRow | None: ...
    def streaming_messages(self, turn: int) -> Sequence[MessageRow]:
        """Return the messages of a turn that are still streaming."""

    def queued_commit(self, n: int) -> QueuedCommitRow | None: ...
    def last_queued_commit(self) -> QueuedCommitRow | None: ...
    def pending_commits(self) -> Sequence[QueuedCommitRow]:
        """Return the entries to commit, retract or resolve, oldest first."""

    def queued_commits_from(self, turn: int) -> Sequence[QueuedCommitRow]:
        """Return the entries that reach `turn` or beyond, in any state, oldest first."""

    def message_events(self, row: MessageRow) -> Sequence[Event]:
        """Return a message's body event, or the event that opened it and its deltas."""


class SessionState(SessionStateView, Protocol):
    """A session's rows, readable and writable."""

    def put_session(self, row: SessionRow) -> None: ...
    def put_turn(self, row: TurnRow) -> None: ...
    def put_run(self, row: RunRow) -> None: ...
    def put_tool(self, row: ToolRow) -> None: ...
    def put_message(self, row: MessageRow) -> None: ...
    def put_queued_commit(self, row: QueuedCommitRow) -> None: ...
    def delete_message(self, turn: int, place: int) -> None:
        """Delete the row at that place: its message is elsewhere now."""


Facts = Sequence[AnyFact | UnknownFact]
Decide = Callable[[SessionStateView], Facts]
"""A decision: a pure function from the current state to new facts; it raises a HoldfastError to refuse."""


class InMemorySessionState:
    """Hold all rows of one session in memory."""

    def __init__(self) -> None:
        self.row: SessionRow | None = None
        self.turns: dict[int, TurnRow] = {}
        self.runs: dict[RunId, RunRow] = {}
        self.tools: dict[CallId, ToolRow] = {}
        self.messages: dict[tuple[int, int], MessageRow] = {}
        self.queued_commits: dict[int, QueuedCommitRow] = {}
        # Indexed by turn: a scan of all messages at each run's end would be quadratic in the session's
        # length.
        self._streaming: dict[int, dict[int, MessageRow]] = {}

    def session(self) -> SessionRow | None:
        return self.row

    def turn(self, turn: int) -> TurnRow | None:
        return self.turns.get(turn)

    def turn_by_key(self, key: str) -> TurnRow | None:
        return next((row for row in self.turns.values() if row.key == key), None)

    def live_turns(self, from_turn: int) -> Sequence[TurnRow]:
        live = [t for t in self.turns.values() if t.status == "live" and t.turn >= from_turn]
        return sorted(live, key=lambda row: row.turn)

    def last_live_turn(self) -> TurnRow | None:
        live = self.live_turns(0)
        return live[-1] if live else None

    def all_turns(self) -> Sequence[TurnRow]:
        return sorted(self.turns.values(), key=lambda row: row.turn)

    def removals(self) -> Sequence[Event]:
        raise NotImplementedError("this book keeps no events")

    def completions(self, after: Seq) -> Iterable[Event]:
        raise NotImplementedError("this book keeps no events")

    def run(self, run_id: RunId) -> RunRow | None:
        return self.runs.get(run_id)

    def open_runs(self) -> Sequence[RunRow]:
        return sorted((r for r in self.runs.values() if not r.is_finished), key=lambda row: row.turn)

    def tool(self, call_id: CallId) -> ToolRow | None:
        return self.tools.get(call_id)

    def open_tools(self, run_id: RunId) -> Sequence[ToolRow]:
        mine = [t for t in self.tools.values() if t.run_id == run_id and t.state != "settled"]
        return sorted(mine, key=lambda row: row.place)

    def message(self, turn: int, place: int) -> MessageRow | None:
        return self.messages.get((turn, place))

    def streaming_messages(self, turn: int) -> Sequence[MessageRow]:
        return sorted(self._streaming.get(turn, {}).values(), key=lambda row: row.place)

    def queued_commit(self, n: int) -> QueuedCommitRow | None:
        return self.queued_commits.get(n)

    def last_queued_commit(self) -> QueuedCommitRow | None:
        return self.queued_commits[max(self.queued_commits)] if self.queued_commits else None

    def pending_commits(self) -> Sequence[QueuedCommitRow]:
        return [self.queued_commits[n] for n in sorted(self.queued_commits) if self.queued_commits[n].is_open]

    def queued_commits_from(self, turn: int) -> Sequence[QueuedCommitRow]:
        return [
            self.queued_commits[n]
            for n in sorted(self.queued_commits)
            if self.queued_commits[n].through_turn >= turn
        ]

    def message_events(self, row: MessageRow) -> Sequence[Event]:
        return ()  # It holds rows only; a caller that folds a journal has the events.

    def put_session(self, row: SessionRow) -> None:
        self.row = row

    def put_turn(self, row: TurnRow) -> None:
        self.turns[row.turn] = row

    def put_run(self, row: RunRow) -> None:
        self.runs[row.id] = row

    def put_tool(self, row: ToolRow) -> None:
        self.tools[row.id] = row

    def put_message(self, row: MessageRow) -> None:
        self.messages[row.turn, row.place] = row
        if row.status == "streaming":
            self._streaming.setdefault(row.turn, {})[row.place] = row
        elif row.turn in self._streaming:
            self._streaming[row.turn].pop(row.place, None)

    def put_queued_commit(self, row: QueuedCommitRow) -> None:
        self.queued_commits[row.n] = row

    def delete_message(self, turn: int, place: int) -> None:
        self.messages.pop((turn, place), None)
        self._streaming.get(turn, {}).pop(place, None)
