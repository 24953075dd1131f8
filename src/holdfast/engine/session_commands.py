"""Change sessions: one transaction per command, decided by the domain, durable on return."""

from collections.abc import Callable
from typing import Literal

import msgspec

from holdfast.domain.decisions import approvals, endings, forks, questions, runs, tools, turns
from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.errors import (
    NoSuchRun,
    NoSuchSession,
    NoSuchToolCall,
    NoSuchTurn,
    RunRefused,
    SeqMismatch,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import CallId, IdGenerator, RunId, Seq, SessionId, TurnId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.domain.secrets import MaskFunction, mask_value, no_mask
from holdfast.domain.shell.denylist import Denylist
from holdfast.domain.shell.rules import ALLOW_ONCE, ApprovalGrant
from holdfast.domain.state.projections import fold
from holdfast.domain.state.rows import RunRow, ToolRow, TurnRow
from holdfast.domain.state.session_state import Facts, InMemorySessionState, SessionStateView
from holdfast.engine.resume_policy import ResumePolicy
from holdfast.store.ports import Append, AppendReceipt, Store


class AcceptedMessage(msgspec.Struct, frozen=True):
    """A stored message: its turn, its run, and whether that run is queued.

    `run_to_start` is the run to start now: this one, or the first of a queue that had stopped.
    """

    session_id: SessionId
    turn_id: TurnId
    run_id: RunId | None
    seq: Seq
    queued: bool = False
    run_to_start: RunId | None = None


class CallResolution(msgspec.Struct, frozen=True):
    """The result of an answer: whether the run can continue, and the rule that came with it, if any."""

    session_id: SessionId
    resumes: bool
    tool: str
    rule: str


class SessionCommands:
    """Commands that change sessions.

    Calls `on_run_ended` with each run that a command ended, so that its work stops. `resume` decides what
    becomes of an interrupted run. Everything that people write goes through `mask` first.
    """

    def __init__(
        self,
        store: Store,
        ids: IdGenerator,
        resume: ResumePolicy,
        on_run_ended: Callable[[RunId], None],
        mask: MaskFunction = no_mask,
    ) -> None:
        self._store = store
        self._resume = resume
        self._ids = ids
        self._on_run_ended = on_run_ended
        self._mask = mask

    async def create(self, created: f.SessionCreated, session_id: SessionId | None = None) -> SessionId:
        session_id, created = session_id or self._ids.session(), mask_value(created, self._mask)
        await self._change(session_id, lambda view: turns.create_session(view, created))
        return session_id

    async def accept(
        self,
        session_id: SessionId,
        parts: tuple[AnyPart, ...],
        key: str | None = None,
        if_busy: turns.BusyPolicy = "queue",
    ) -> AcceptedMessage:
        """Store a message and its run. The same key returns the same result."""
        parts, key = mask_value(parts, self._mask), mask_value(key, self._mask)

        def decide(view: SessionStateView) -> Facts:
            resumes = self._resume.policy_for(view.session()) == "auto"
            return turns.accept_turn(
                view, session_id, self._ids, parts, key, view.message_events, resumes, if_busy
            )

        return _accepted(*await self._change(session_id, decide))

    async def has_message(self, session_id: SessionId, key: str) -> bool:
        """Return whether the session has a message with this key."""
        return await self.find_accepted(session_id, key) is not None

    async def find_accepted(self, session_id: SessionId, key: str) -> AcceptedMessage | None:
        """Return the message with this key, whatever its content, or None."""
        key, found = self._mask(key), list[TurnRow | None]()

        def read(view: SessionStateView) -> Facts:
            found[:] = [view.turn_by_key(key)]
            return ()

        await self._change(session_id, read)
        turn = found[0]
        if turn is None or turn.status == "moved":
            return None
        return AcceptedMessage(session_id, turn.id, turn.run_id, turn.seq)

    async def cancel(self, run_id: RunId, by: f.Actor = "user") -> SessionId:
        """Cancel a run for good, with everything that showed it as working."""
        session_id, _ = await self._store.run(run_id)
        await self._change(
            session_id, lambda view: endings.cancel(view, _run(view, run_id), by, view.message_events)
        )
        return session_id

    async def undo(self, session_id: SessionId, turn_id: TurnId | None, expect: Seq | None = None) -> None:
        await self._change(
            session_id,
            lambda view: turns.undo(view, session_id, turn_id, "undo", view.message_events),
            expect,
        )

    async def restore(self, session_id: SessionId, turn_id: TurnId | None, expect: Seq | None = None) -> None:
        """Make removed turns live again: without `turn_id`, those that were undone last.

        Raises NoSuchTurn, RestoreRefused, SessionMoved.
        """
        await self._change(
            session_id, lambda view: turns.restore(view, session_id, turn_id, view.message_events), expect
        )

    async def replace(
        self,
        session_id: SessionId,
        turn_id: TurnId | None,
        parts: tuple[AnyPart, ...] | None,
        expect: Seq | None = None,
    ) -> AcceptedMessage:
        """Edit a turn, or without `parts` try it again; undo it and every turn after it."""
        parts = mask_value(parts, self._mask)

        def decide(view: SessionStateView) -> Facts:
            if view.session() is None:
                raise NoSuchSession(session_id=session_id)
            turn = view.last_live_turn() if turn_id is None else _turn(view, session_id, turn_id)
            if turn is None:
                raise NoSuchTurn(session_id=session_id, turn="there is none left")
            new_parts = parts if parts is not None else _message_parts(view, turn.turn)
            reason: Literal["edit", "retry"] = "edit" if parts is not None else "retry"
            return turns.replace_turns(
                view, session_id, self._ids, turn.id, new_parts, reason, None, view.message_events
            )

        return _accepted(*await self._change(session_id, decide, expect))

    async def clear(self, session_id: SessionId, expect: Seq | None = None) -> None:
        await self._change(
            session_id, lambda view: turns.clear(view, session_id, view.message_events), expect
        )

    async def compact(self, session_id: SessionId, drafted: DraftSummary) -> None:
        """Replace older turns with their summary. Raises SummaryRefused, RunRefused, SessionMoved."""
        through, summary, before = drafted.through_turn, self._mask(drafted.summary), drafted.before
        await self._change(session_id, lambda view: turns.compact(view, session_id, through, summary, before))

    async def first_open_turn(self, session_id: SessionId) -> int | None:
        """Return the first turn whose run is open. Raises NoSuchSession, SessionMoved."""
        found: list[int] = []

        def read(view: SessionStateView) -> Facts:
            turns.check_not_moved(view, session_id)
            found[:] = [run.turn for run in view.open_runs()]
            return ()

        await self._change(session_id, read)
        return found[0] if found else None

    async def rename(self, session_id: SessionId, title: str, by: Literal["user", "model"] = "user") -> None:
        title = self._mask(title)
        await self._change(session_id, lambda view: turns.rename(view, session_id, title, by))

    async def configure(self, session_id: SessionId, changes: f.SessionConfigured) -> None:
        changes = mask_value(changes, self._mask)
        await self._change(session_id, lambda view: turns.configure(view, session_id, changes))

    async def archive(self, session_id: SessionId, archived: bool) -> None:
        await self._change(session_id, lambda view: turns.archive(view, session_id, archived))

    async def change(
        self,
        session_id: SessionId,
        title: str | None,
        archived: bool | None,
        configuration: f.SessionConfigured,
        expect: Seq | None = None,
    ) -> None:
        """Rename, archive and configure in one transaction; None leaves a value unchanged."""
        title, configuration = mask_value(title, self._mask), mask_value(configuration, self._mask)

        def decide(view: SessionStateView) -> Facts:
            renamed = turns.rename(view, session_id, title, "user") if title is not None else []
            archiving = turns.archive(view, session_id, archived) if archived is not None else []
            return [*renamed, *archiving, *turns.configure(view, session_id, configuration)]

        await self._change(session_id, decide, expect)

    async def delete(self, session_id: SessionId, expect: Seq | None = None, notes: bool = False) -> None:
        """Delete a conversation, and with `notes` what was saved from it.

        Raises SeqMismatch unless its head is the event `expect`.
        """
        await self._change(
            session_id, lambda view: turns.delete(view, session_id, view.message_events, notes), expect
        )

    async def resume(self, run_id: RunId) -> SessionId:
        """Continue a run that was interrupted or waits at a limit, or start a queued one."""
        session_id, _ = await self._store.run(run_id)

        def decide(view: SessionStateView) -> Facts:
            run = _run(view, run_id)
            if run.status == "queued" and any(other.turn < run.turn for other in view.open_runs()):
                raise RunRefused(run_id=run_id, status="behind another run", verb="begin")
            return runs.dequeue(run) if run.status == "queued" else runs.continue_run(run)

        await self._change(session_id, decide)
        return session_id

    async def resolve(
        self,
        run_id: RunId,
        call_id: CallId,
        decision: f.ToolDecision,
        text: str | None = None,
        allowing: ApprovalGrant = ALLOW_ONCE,
        denylist: Denylist | None = None,
    ) -> CallResolution:
        """Apply a person's decision on a call.

        `text` is the reason of a denial, or the output of a call that did run. Raises ToolRefused if the call
        needs no decision (any more), RuleRefused, CommandForbidden.
        """
        text, allowing = mask_value(text, self._mask), mask_value(allowing, self._mask)
        return await self._settle_call(
            run_id,
            call_id,
            lambda view, run, tool: approvals.apply_decision(
                view, run, tool, decision, text, allowing, denylist
            ),
        )

    async def answer(
        self, run_id: RunId, call_id: CallId, reply: questions.Reply, key: str = ""
    ) -> CallResolution:
        """Apply a person's answer to a question; `key` identifies the message that brought it.

        Raises ToolRefused if the question is not open (any more), AnswerRefused, TooLarge.
        """
        reply = mask_value(reply, self._mask)
        return await self._settle_call(
            run_id, call_id, lambda view, run, tool: questions.answer(view, run, tool, reply, key)
        )

    async def _settle_call(
        self,
        run_id: RunId,
        call_id: CallId,
        decide_call: Callable[[SessionStateView, RunRow, ToolRow], list[f.AnyFact]],
    ) -> CallResolution:
        """Apply `decide_call` to a call, and continue the run if it waited for nothing else."""
        session_id, _ = await self._store.run(run_id)
        resolved: list[CallResolution] = []

        def decide(view: SessionStateView) -> Facts:
            run, tool = _run(view, run_id), _tool(view, run_id, call_id)
            facts = decide_call(view, run, tool)
            rest = [other for other in view.open_tools(run_id) if other.id != call_id]
            resumes = not any(map(tools.needs_user, rest)) and run.status == "waiting"
            rule = next((fact.rule for fact in facts if isinstance(fact, f.ApprovalResolved)), "")
            resolved[:] = [CallResolution(session_id, resumes, tool.name, rule)]
            return [*facts, *(runs.answer(run) if resumes else [])]

        await self._change(session_id, decide)
        return resolved[0]

    async def fork(
        self, session_id: SessionId, turn_id: TurnId | None = None, expect: Seq | None = None
    ) -> SessionId:
        """Create a session that begins with a copy of this one's live turns, up to `turn_id`.

        Raises SeqMismatch unless the copy ends with the event `expect`.
        """
        events: list[Event] = []
        while batch := await self._store.read(session_id, events[-1].seq if events else 0, READ_EVENTS_MAX):
            events += batch
        head = events[-1].seq
        if expect is not None and expect != head:
            raise SeqMismatch(session_id=session_id, head=head, expect=expect)
        child, state = self._ids.session(), fold(session_id, events)
        through = _turn(state, session_id, turn_id).turn if turn_id is not None else None
        facts = forks.fork(state, session_id, head, _bodies(state, events), self._ids, through)
        await self._store.append(Append(child, facts, expect=0))
        return child

    async def _change(
        self, session_id: SessionId, decide: Callable[[SessionStateView], Facts], expect: Seq | None = None
    ) -> tuple[AppendReceipt, Facts]:
        decided: list[Facts] = []

        def record_decision(view: SessionStateView) -> Facts:
            decided[:] = [decide(view)]
            return decided[0]

        (receipt,) = await self._store.append(Append(session_id, record_decision, expect=expect))
        for fact in decided[0] if receipt.repeated_turn is None else ():
            if isinstance(fact, f.RunCancelled | f.RunFailed):
                self._on_run_ended(fact.run_id)
        return receipt, decided[0]


def _bodies(state: InMemorySessionState, events: list[Event]) -> list[f.Body]:
    by_seq = {event.seq: event for event in events if event.kind in f.BODY_KINDS}
    rows = [state.messages[place] for place in sorted(state.messages)]
    facts = [by_seq[row.body_seq].fact for row in rows if row.body_seq in by_seq]
    return [fact for fact in facts if isinstance(fact, f.Body)]


def _accepted(receipt: AppendReceipt, facts: Facts) -> AcceptedMessage:
    if receipt.repeated_turn is not None:
        turn = receipt.repeated_turn
        return AcceptedMessage(receipt.session_id, turn.id, turn.run_id, turn.seq)
    (index, accepted), *_ = [(i, fact) for i, fact in enumerate(facts) if isinstance(fact, f.TurnAccepted)]
    queued = any(isinstance(fact, f.TurnQueued) for fact in facts)
    runs_to_start = [fact.run_id for fact in facts if isinstance(fact, f.TurnDequeued)]
    if not queued and accepted.run_id is not None:
        runs_to_start.append(accepted.run_id)
    seq = receipt.first_seq + index
    return AcceptedMessage(
        receipt.session_id,
        accepted.turn_id,
        accepted.run_id,
        seq,
        queued,
        runs_to_start[0] if runs_to_start else None,
    )


def _message_parts(view: SessionStateView, turn: int) -> tuple[AnyPart, ...]:
    row = view.message(turn, 0)
    events = view.message_events(row) if row is not None else ()
    fact = events[0].fact if events else None
    return fact.parts if isinstance(fact, f.TurnAccepted) else ()


def _turn(view: SessionStateView, session_id: SessionId, turn_id: TurnId) -> TurnRow:
    turn = next((turn for turn in view.live_turns(0) if turn.id == turn_id), None)
    if turn is None:
        raise NoSuchTurn(session_id=session_id, turn=turn_id)
    return turn


def _run(view: SessionStateView, run_id: RunId) -> RunRow:
    run = view.run(run_id)
    if run is None:
        raise NoSuchRun(run_id=run_id)
    return run


def _tool(view: SessionStateView, run_id: RunId, call_id: CallId) -> ToolRow:
    tool = view.tool(call_id)
    if tool is None or tool.run_id != run_id:
        raise NoSuchToolCall(call_id=call_id)
    return tool
