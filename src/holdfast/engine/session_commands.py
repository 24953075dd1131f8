"""What can be done to a session, each one transaction: decided by the domain inside it, durable on return."""

from collections.abc import Callable
from typing import Literal

import msgspec

from holdfast.domain.decisions import approvals, endings, forks, questions, runs, tools, turns
from holdfast.domain.decisions.compaction import Drafted
from holdfast.domain.errors import (
    NoSuchRun,
    NoSuchSession,
    NoSuchTool,
    NoSuchTurn,
    RunRefused,
    SeqMismatch,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import CallId, Ids, RunId, Seq, SessionId, TurnId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.domain.secrets import Masking, identity, masked
from holdfast.domain.shell.denylist import Forbidden
from holdfast.domain.shell.rules import ONCE, Allowing
from holdfast.domain.state.projections import fold
from holdfast.domain.state.rows import RunRow, ToolRow, TurnRow
from holdfast.domain.state.session_state import Facts, MemoryBook, View
from holdfast.engine.resume_policy import ResumePolicy
from holdfast.store.ports import Append, Receipt, Store


class Accepted(msgspec.Struct, frozen=True):
    """A message that is kept: its turn, its run, whether that waits in the queue.

    `begins` is the run to begin now: this one, or the first of a queue that stood still.
    """

    session_id: SessionId
    turn_id: TurnId
    run_id: RunId | None
    seq: Seq
    queued: bool = False
    begins: RunId | None = None


class Resolved(msgspec.Struct, frozen=True):
    """What an answer brought about: whether the run can go on now, and the rule that came with it, if any."""

    session_id: SessionId
    goes_on: bool
    tool: str
    rule: str


class Verbs:
    """Changes to sessions. `ended` is told of runs that were ended here, so that their work is stopped.

    `resume` is what becomes of an interrupted run. Whatever people write goes through `mask` first.
    """

    def __init__(
        self,
        store: Store,
        ids: Ids,
        resume: ResumePolicy,
        ended: Callable[[RunId], None],
        mask: Masking = identity,
    ) -> None:
        self._store = store
        self._resume = resume
        self._ids = ids
        self._ended = ended
        self._mask = mask

    async def create(self, created: f.SessionCreated, session_id: SessionId | None = None) -> SessionId:
        session_id, created = session_id or self._ids.session(), masked(created, self._mask)
        await self._change(session_id, lambda view: turns.create_session(view, created))
        return session_id

    async def accept(
        self,
        session_id: SessionId,
        parts: tuple[AnyPart, ...],
        key: str | None = None,
        if_busy: turns.IfBusy = "queue",
    ) -> Accepted:
        """Keep a message and its run. The same key again gives the same answer."""
        parts, key = masked(parts, self._mask), masked(key, self._mask)

        def decide(view: View) -> Facts:
            resumes = self._resume.of(view.session()) == "auto"
            return turns.accept_turn(view, session_id, self._ids, parts, key, view.written, resumes, if_busy)

        return _accepted(*await self._change(session_id, decide))

    async def is_kept(self, session_id: SessionId, key: str) -> bool:
        """Whether a message with this key is there already."""
        return await self.kept(session_id, key) is not None

    async def kept(self, session_id: SessionId, key: str) -> Accepted | None:
        """The message with this key, if it is there already, whatever it says."""
        key, found = self._mask(key), list[TurnRow | None]()

        def look(view: View) -> Facts:
            found[:] = [view.turn_by_key(key)]
            return ()

        await self._change(session_id, look)
        turn = found[0]
        if turn is None or turn.status == "moved":
            return None
        return Accepted(session_id, turn.id, turn.run_id, turn.seq)

    async def cancel(self, run_id: RunId, by: f.Actor = "user") -> SessionId:
        """Stop a run for good: everything that said it was working is gone in the same moment."""
        session_id, _ = await self._store.run(run_id)
        await self._change(
            session_id, lambda view: endings.cancel(view, _run(view, run_id), by, view.written)
        )
        return session_id

    async def undo(self, session_id: SessionId, turn_id: TurnId | None, expect: Seq | None = None) -> None:
        await self._change(
            session_id, lambda view: turns.undo(view, session_id, turn_id, "undo", view.written), expect
        )

    async def restore(self, session_id: SessionId, turn_id: TurnId | None, expect: Seq | None = None) -> None:
        """Make removed turns live again: with no `turn_id`, those that were undone last.

        Raises NoSuchTurn, RestoreRefused, SessionMoved.
        """
        await self._change(
            session_id, lambda view: turns.restore(view, session_id, turn_id, view.written), expect
        )

    async def replace(
        self,
        session_id: SessionId,
        turn_id: TurnId | None,
        parts: tuple[AnyPart, ...] | None,
        expect: Seq | None = None,
    ) -> Accepted:
        """Edit a turn, or with no parts try it again: what it and all after it said is undone."""
        parts = masked(parts, self._mask)

        def decide(view: View) -> Facts:
            if view.session() is None:
                raise NoSuchSession(session_id=session_id)
            turn = view.last_live_turn() if turn_id is None else _turn(view, session_id, turn_id)
            if turn is None:
                raise NoSuchTurn(session_id=session_id, turn="there is none left")
            said = parts if parts is not None else _said(view, turn.turn)
            reason: Literal["edit", "retry"] = "edit" if parts is not None else "retry"
            return turns.replace_turns(view, session_id, self._ids, turn.id, said, reason, None, view.written)

        return _accepted(*await self._change(session_id, decide, expect))

    async def clear(self, session_id: SessionId, expect: Seq | None = None) -> None:
        await self._change(session_id, lambda view: turns.clear(view, session_id, view.written), expect)

    async def compact(self, session_id: SessionId, drafted: Drafted) -> None:
        """Let a summary stand for what it was made of. Raises SummaryRefused, RunRefused, SessionMoved."""
        through, summary, before = drafted.through_turn, self._mask(drafted.summary), drafted.before
        await self._change(session_id, lambda view: turns.compact(view, session_id, through, summary, before))

    async def first_open(self, session_id: SessionId) -> int | None:
        """The first turn whose run is not over. Raises NoSuchSession, SessionMoved."""
        found: list[int] = []

        def look(view: View) -> Facts:
            turns.check_not_moved(view, session_id)
            found[:] = [run.turn for run in view.open_runs()]
            return ()

        await self._change(session_id, look)
        return found[0] if found else None

    async def rename(self, session_id: SessionId, title: str, by: Literal["user", "model"] = "user") -> None:
        title = self._mask(title)
        await self._change(session_id, lambda view: turns.rename(view, session_id, title, by))

    async def configure(self, session_id: SessionId, wanted: f.SessionConfigured) -> None:
        wanted = masked(wanted, self._mask)
        await self._change(session_id, lambda view: turns.configure(view, session_id, wanted))

    async def archive(self, session_id: SessionId, archived: bool) -> None:
        await self._change(session_id, lambda view: turns.archive(view, session_id, archived))

    async def change(
        self,
        session_id: SessionId,
        title: str | None,
        archived: bool | None,
        wanted: f.SessionConfigured,
        expect: Seq | None = None,
    ) -> None:
        """Rename, archive and configure at once; what is None stays."""
        title, wanted = masked(title, self._mask), masked(wanted, self._mask)

        def decide(view: View) -> Facts:
            renamed = turns.rename(view, session_id, title, "user") if title is not None else []
            moved = turns.archive(view, session_id, archived) if archived is not None else []
            return [*renamed, *moved, *turns.configure(view, session_id, wanted)]

        await self._change(session_id, decide, expect)

    async def delete(self, session_id: SessionId, expect: Seq | None = None, notes: bool = False) -> None:
        """Delete a conversation, and with `notes` what was saved from it.

        Raises SeqMismatch unless it is still at the event that is expected.
        """
        await self._change(
            session_id, lambda view: turns.delete(view, session_id, view.written, notes), expect
        )

    async def resume(self, run_id: RunId) -> SessionId:
        """A person lets a run go on that was interrupted or waits at a limit, or a queued one begin."""
        session_id, _ = await self._store.run(run_id)

        def decide(view: View) -> Facts:
            run = _run(view, run_id)
            if run.status == "queued" and any(other.turn < run.turn for other in view.open_runs()):
                raise RunRefused(run_id=run_id, status="behind another run", verb="begin")
            return runs.dequeue(run) if run.status == "queued" else runs.go_on(run)

        await self._change(session_id, decide)
        return session_id

    async def resolve(
        self,
        run_id: RunId,
        call_id: CallId,
        decision: f.Decision,
        text: str | None = None,
        allowing: Allowing = ONCE,
        forbidden: Forbidden | None = None,
    ) -> Resolved:
        """A person's word on a call.

        `text` is the reason of a denial, or what a call that did run gave. Raises ToolRefused when it is not
        asked about (any more), RuleRefused, NeverRun.
        """
        text, allowing = masked(text, self._mask), masked(allowing, self._mask)
        return await self._settle(
            run_id,
            call_id,
            lambda view, run, tool: approvals.answer(view, run, tool, decision, text, allowing, forbidden),
        )

    async def answer(self, run_id: RunId, call_id: CallId, reply: questions.Reply, key: str = "") -> Resolved:
        """A person's answer to a question; `key` names what it came with.

        Raises ToolRefused when it is not asked (any more), AnswerRefused, TooLarge.
        """
        reply = masked(reply, self._mask)
        return await self._settle(
            run_id, call_id, lambda view, run, tool: questions.answer(view, run, tool, reply, key)
        )

    async def _settle(
        self,
        run_id: RunId,
        call_id: CallId,
        say: Callable[[View, RunRow, ToolRow], list[f.AnyFact]],
    ) -> Resolved:
        """What `say` says of a call, and that the run goes on if that was the last it waited for."""
        session_id, _ = await self._store.run(run_id)
        resolved: list[Resolved] = []

        def decide(view: View) -> Facts:
            run, tool = _run(view, run_id), _tool(view, run_id, call_id)
            facts = say(view, run, tool)
            rest = [other for other in view.open_tools(run_id) if other.id != call_id]
            goes_on = not any(map(tools.needs_a_person, rest)) and run.status == "waiting"
            rule = next((fact.rule for fact in facts if isinstance(fact, f.ApprovalResolved)), "")
            resolved[:] = [Resolved(session_id, goes_on, tool.name, rule)]
            return [*facts, *(runs.answer(run) if goes_on else [])]

        await self._change(session_id, decide)
        return resolved[0]

    async def fork(
        self, session_id: SessionId, turn_id: TurnId | None = None, expect: Seq | None = None
    ) -> SessionId:
        """Create a session that begins with a copy of this one's live turns, up to `turn_id`.

        Raises SeqMismatch unless what is copied ends with the event `expect`.
        """
        events: list[Event] = []
        while batch := await self._store.read(session_id, events[-1].seq if events else 0, READ_EVENTS_MAX):
            events += batch
        head = events[-1].seq
        if expect is not None and expect != head:
            raise SeqMismatch(session_id=session_id, head=head, expect=expect)
        child, book = self._ids.session(), fold(session_id, events)
        through = _turn(book, session_id, turn_id).turn if turn_id is not None else None
        facts = forks.fork(book, session_id, head, _bodies(book, events), self._ids, through)
        await self._store.append(Append(child, facts, expect=0))
        return child

    async def _change(
        self, session_id: SessionId, decide: Callable[[View], Facts], expect: Seq | None = None
    ) -> tuple[Receipt, Facts]:
        decided: list[Facts] = []

        def keep(view: View) -> Facts:
            decided[:] = [decide(view)]
            return decided[0]

        (receipt,) = await self._store.append(Append(session_id, keep, expect=expect))
        for fact in decided[0] if receipt.repeated is None else ():
            if isinstance(fact, f.RunCancelled | f.RunFailed):
                self._ended(fact.run_id)
        return receipt, decided[0]


def _bodies(book: MemoryBook, events: list[Event]) -> list[f.Body]:
    by_seq = {event.seq: event for event in events if event.kind in f.BODY_KINDS}
    rows = [book.messages[place] for place in sorted(book.messages)]
    facts = [by_seq[row.body_seq].fact for row in rows if row.body_seq in by_seq]
    return [fact for fact in facts if isinstance(fact, f.Body)]


def _accepted(receipt: Receipt, facts: Facts) -> Accepted:
    if receipt.repeated is not None:
        turn = receipt.repeated
        return Accepted(receipt.session_id, turn.id, turn.run_id, turn.seq)
    (at, sent), *_ = [(i, fact) for i, fact in enumerate(facts) if isinstance(fact, f.TurnAccepted)]
    queued = any(isinstance(fact, f.TurnQueued) for fact in facts)
    begins = [fact.run_id for fact in facts if isinstance(fact, f.TurnDequeued)]
    if not queued and sent.run_id is not None:
        begins.append(sent.run_id)
    seq = receipt.first_seq + at
    return Accepted(receipt.session_id, sent.turn_id, sent.run_id, seq, queued, begins[0] if begins else None)


def _said(view: View, turn: int) -> tuple[AnyPart, ...]:
    row = view.message(turn, 0)
    events = view.written(row) if row is not None else ()
    fact = events[0].fact if events else None
    return fact.parts if isinstance(fact, f.TurnAccepted) else ()


def _turn(view: View, session_id: SessionId, turn_id: TurnId) -> TurnRow:
    turn = next((turn for turn in view.live_turns(0) if turn.id == turn_id), None)
    if turn is None:
        raise NoSuchTurn(session_id=session_id, turn=turn_id)
    return turn


def _run(view: View, run_id: RunId) -> RunRow:
    run = view.run(run_id)
    if run is None:
        raise NoSuchRun(run_id=run_id)
    return run


def _tool(view: View, run_id: RunId, call_id: CallId) -> ToolRow:
    tool = view.tool(call_id)
    if tool is None or tool.run_id != run_id:
        raise NoSuchTool(call_id=call_id)
    return tool
