"""A person's word from a chat on what is asked there: by a button, or typed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from holdfast.channels import button_action
from holdfast.channels.button_action import Press, Verb
from holdfast.channels.question_text import TOO_LONG, is_too_long
from holdfast.channels.router import NOWHERE, Done, Place, said
from holdfast.domain.chats import DeliveryRow, InboundRow, NewDelivery, Outgoing
from holdfast.domain.decisions.questions import Reply, typed
from holdfast.domain.errors import (
    NoSuchRun,
    NoSuchSession,
    NoSuchTool,
    NoSuchTurn,
    RunRefused,
    SeqMismatch,
    ToolRefused,
)
from holdfast.domain.events import facts as f
from holdfast.domain.ids import CallId, RunId, Seq, SessionId, TurnId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.domain.shell.rules import ONCE, Allowing
from holdfast.domain.transcript.labels import title_of
from holdfast.engine.engine import Engine
from holdfast.store.ports import Store
from holdfast.store.session_status import Question

_NOTHING = MappingProxyType({
    "undo": "There is nothing to undo.",
    "restore": "There is nothing to restore.",
    "retry": "There is nothing to answer again.",
})  # fmt: skip
ANSWERED = "This was answered already, or is no longer asked."
OVERTAKEN = "Something was said here meanwhile, so nothing was changed. Say it again if you still want it."
IN_WORDS = "This wants an answer: press one of its buttons, or write it. /deny leaves it unanswered."
NOTHING_ASKED = "Nothing is being asked here."
_OVER = "No longer asked."
_PRESSED: Mapping[Verb, str] = MappingProxyType({
    "allow": "Allowed.",
    "always": "Always allowed there.",
    "deny": "Not allowed.",
    "rerun": "Run again.",
    "ran": "It finished.",
    "skip": "Carried on without it.",
    "pick": "Answered.",
    "go": "Continued.",
    "stop": "Stopped.",
    "again": "Answering again.",
})  # fmt: skip
"""What is said of a press in a chat that is not told of what comes of it."""
_LOOK_BACK = 200
"""Among how many of a chat's messages the one is looked for whose button was pressed."""
_TRIES_MAX = 100
_ENDS = (f.RunCompleted, f.RunCancelled, f.RunFailed)


class Answering:
    """Each of these can be done again to the same effect: first it looks at what has happened since."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    async def press(self, row: InboundRow, place: Place, press: Press) -> Done | None:
        """What a button says, if it was put into that chat: whoever made it up has pressed nothing."""
        if not await self._was_offered(row, place, press):
            return said(ANSWERED)
        if press.verb == "again":
            session_id = SessionId(press.what)
            # One without its turn was for the last one of its day, which may be another by now.
            turn_id = TurnId(press.which)
            done = await self.change(row, session_id, turn_id, "retry") if turn_id else said(ANSWERED)
        else:
            try:
                session_id, _ = await self._store.run(RunId(press.what))
            except NoSuchRun:
                return await self._told(place, press, NOWHERE, said(ANSWERED))
            done = await self._press(row, session_id, press)
        return await self._told(place, press, session_id, done) if done is not None else None

    async def _was_offered(self, row: InboundRow, place: Place, press: Press) -> bool:
        """Whether the chat shows that very button, or did when this was first taken up."""
        if await self._store.offered(place.key, str(press)) is not None:
            return True
        # What was assigned before was let through then, and what came of it took the button away.
        return bool((await self._store.assign(row.no, NOWHERE, 0)).session_id)

    async def _press(self, row: InboundRow, session_id: SessionId, press: Press) -> Done | None:
        run_id = RunId(press.what)
        assigned = await self._assign(row, session_id)
        if assigned is None:
            return None
        if await self._has(assigned, lambda fact: _answers(fact, run_id, press.which)):
            return Done()
        try:
            await self._answer(run_id, press)
        except (ToolRefused, RunRefused, NoSuchTool):
            return said(ANSWERED)
        return Done()

    async def approve(self, row: InboundRow, place: Place) -> Done | None:
        """Yes to what was asked first."""
        return await self._typed(row, place, True, "")

    async def deny(self, row: InboundRow, place: Place, reason: str) -> Done | None:
        return await self._typed(row, place, False, reason)

    async def reply(self, row: InboundRow, place: Place, text: str, words: str, key: str) -> bool:
        """Whether what was said answers a question: the first open one that it can, which is answered then.

        `words` is what an answer in words says. What was kept as a message before is none.
        """
        assigned = await self._assign(row, place.session_id) if place.session_id else None
        if assigned is None:
            return False

        def is_it(fact: object) -> bool:
            return isinstance(fact, f.QuestionAnswered) and fact.key == key

        if await self._has(assigned, is_it):
            return True
        asked = [each for each in await self.questions(place.session_id) if each.question and each.call_id]
        if not asked or await self._engine.verbs.is_kept(place.session_id, key):
            return False
        for question in asked:
            meant = typed(question.choices, question.multiple, text)
            if meant is None or question.call_id is None:
                continue
            said_so = meant if meant.choices else Reply(words)
            try:
                await self._engine.answer(question.run_id, question.call_id, said_so, key)
            except (ToolRefused, RunRefused, NoSuchTool):
                # By somebody else, or by another process with these same words.
                if await self._has(assigned, is_it):
                    return True
                continue
            return True
        return False

    async def stop(self, row: InboundRow, place: Place) -> Done | None:
        """End the answer under way."""
        assigned = await self._assign(row, place.session_id)
        if assigned is None or not place.session_id:
            return said("There is nothing to stop.") if assigned is not None else None
        if await self._has(assigned, lambda fact: isinstance(fact, _ENDS)):
            return said("Stopped.")
        session = await self._store.session(place.session_id)
        if session.run_id is None:
            return said("There is nothing to stop.")
        try:
            await self._engine.cancel(session.run_id)
        except RunRefused:
            return said("There is nothing to stop.")
        return said("Stopped.")

    async def change(
        self, row: InboundRow, session_id: SessionId, turn_id: TurnId | None, verb: str
    ) -> Done | None:
        """Undo, restore or retry (`verb`), unless that was done or something was said since."""
        nothing = _NOTHING[verb]
        assigned = await self._assign(row, session_id)
        if assigned is None:
            return None
        if not session_id:
            return said(nothing)
        for _ in range(_TRIES_MAX):
            facts, head = await self._since(assigned)
            if any(isinstance(fact, f.TurnsUndone | f.TurnsRestored) for fact in facts):
                return Done()
            if any(isinstance(fact, f.TurnAccepted) for fact in facts):
                return said(OVERTAKEN)
            try:
                await self._change_at(session_id, turn_id, verb, head)
            except SeqMismatch:
                # Mostly by the words of an answer, which change nothing about it.
                await asyncio.sleep(0)
                continue
            except NoSuchTurn:
                return said(nothing if turn_id is None else ANSWERED)
            return Done()
        return said(OVERTAKEN)

    async def questions(self, session_id: SessionId) -> Sequence[Question]:
        """What is asked in a conversation, the first first."""
        standing = (await self._store.standings([session_id])).get(session_id) if session_id else None
        return standing.questions if standing is not None else ()

    async def _change_at(self, session_id: SessionId, turn_id: TurnId | None, verb: str, head: Seq) -> None:
        if verb == "undo":
            await self._engine.verbs.undo(session_id, turn_id, head)
        elif verb == "restore":
            await self._engine.verbs.restore(session_id, turn_id, head)
        else:
            await self._engine.replace(session_id, turn_id, None, head)

    async def _typed(self, row: InboundRow, place: Place, yes: bool, reason: str) -> Done | None:
        assigned = await self._assign(row, place.session_id)
        if assigned is None:
            return None
        if place.session_id and await self._has(assigned, _is_an_answer):
            return Done()
        questions = await self.questions(place.session_id)
        if not questions:
            return await self._continue(place) if yes else said(NOTHING_ASKED)
        # What wants words is not answered with yes.
        first = next((each for each in questions if not (yes and each.question)), None)
        if first is None:
            return said(IN_WORDS)
        if yes and (first.arguments_cut or is_too_long(first.name, first.arguments)):
            return said(TOO_LONG)
        try:
            await self._answer(first.run_id, _press_of(first, yes), reason)
        except (ToolRefused, RunRefused, NoSuchTool):
            return said(ANSWERED)
        more = len(questions) - 1
        return said(f"{more} more {'waits' if more == 1 else 'wait'} for your answer.") if more else Done()

    async def _told(self, place: Place, press: Press, session_id: SessionId, done: Done) -> Done:
        """What a chat sees of its press where it is told nothing more of what was asked.

        It has turned away from that conversation since, and may be back: what is over is not asked any more.
        """
        touched_at = place.route.touched_at if place.route is not None else 0
        is_there = bool(session_id) and session_id == place.session_id
        left = [
            row
            for row in await self._store.deliveries(place.key, _LOOK_BACK)
            if _asks(row, press) and not (is_there and row.made_at >= touched_at)
        ]
        if not left:
            return done
        words = _OVER if done.replies else _PRESSED[press.verb]
        changed = tuple(_over(row, words) for row in left)
        if is_there or done.replies:
            return replace(done, changed=changed)
        title = (await self._store.session(session_id)).title
        where = f"in “{title_of(title)}”" if title else "where it was asked: see /sessions"
        return replace(said(f"{words} It goes on {where}."), changed=changed)

    async def _continue(self, place: Place) -> Done:
        """Have an answer go on that stopped with the server."""
        session = await self._store.session(place.session_id) if place.session_id else None
        if session is None or session.run_id is None or session.status != "interrupted":
            return said(NOTHING_ASKED)
        await self._engine.resume(session.run_id)
        return Done()

    async def _answer(self, run_id: RunId, press: Press, reason: str = "") -> None:
        call_id = CallId(press.which)
        resolve = self._engine.resolve
        match press.verb:
            case "allow" | "always":
                allowing = Allowing("session") if press.verb == "always" else ONCE
                await resolve(run_id, call_id, "approve", None, allowing)
            case "deny":
                await resolve(run_id, call_id, "deny", reason or None)
            case "rerun" | "skip":
                await resolve(run_id, call_id, press.verb)
            case "ran":
                await resolve(run_id, call_id, "mark_done")
            case "pick":
                await self._pick(run_id, call_id, press.number)
            case "go":
                await self._engine.resume(run_id)
            case "stop":
                await self._engine.cancel(run_id)

    async def _pick(self, run_id: RunId, call_id: CallId, number: str) -> None:
        """Raises ToolRefused if it is no longer asked."""
        session_id, _ = await self._store.run(run_id)
        for question in await self.questions(session_id):
            picked = dict(enumerate(question.choices, 1)).get(int(number) if number.isdecimal() else 0)
            if question.call_id == call_id and picked is not None:
                await self._engine.answer(run_id, call_id, Reply(choices=(picked,)))
                return
        raise ToolRefused(call_id=call_id, state="no longer asked", verb="be answered")

    async def _assign(self, row: InboundRow, session_id: SessionId) -> InboundRow | None:
        """Written down which conversation it is about, and where that stands. None: it is dealt with."""
        try:
            head = await self._store.head(session_id) if session_id else 0
        except NoSuchSession:
            session_id, head = NOWHERE, 0
        assigned = await self._store.assign(row.no, session_id, head)
        return assigned if assigned.state != "done" else None

    async def _has(self, assigned: InboundRow, is_it: Callable[[object], bool]) -> bool:
        facts, _ = await self._since(assigned)
        return any(is_it(fact) for fact in facts)

    async def _since(self, assigned: InboundRow) -> tuple[list[object], Seq]:
        """What has happened in its conversation since something was assigned, and where that stands."""
        facts: list[object] = []
        at = assigned.expect
        while events := await self._store.read(assigned.session_id, at, READ_EVENTS_MAX):
            facts += [event.fact for event in events if event.kind not in f.DELTA_KINDS]
            at = events[-1].seq
        return facts, at


def _asks(row: DeliveryRow, press: Press) -> bool:
    """Whether a message has the button, or one beside it."""
    found = [button_action.read(button.press) for button in row.body.buttons]
    return any(each is not None and (each.what, each.which) == (press.what, press.which) for each in found)


def _over(row: DeliveryRow, words: str) -> NewDelivery:
    return NewDelivery(row.source, row.piece, row.kind, Outgoing(f"{row.body.text}\n\n*{words}*"))


def _is_an_answer(fact: object) -> bool:
    """Whether it is a person's word on anything."""
    of_run, of_call = f.RunResumed | f.RunCancelled, f.ApprovalResolved | f.ToolResolved
    resolved = of_run | of_call | f.QuestionAnswered | f.QuestionClosed
    return isinstance(fact, resolved) and fact.by == "user"


def _answers(fact: object, run_id: RunId, call_id: str) -> bool:
    """Whether it is somebody's word on that call, or on that run."""
    if isinstance(fact, f.ApprovalResolved | f.ToolResolved | f.QuestionAnswered | f.QuestionClosed):
        return fact.by == "user" and fact.call_id == call_id
    of_run = isinstance(fact, f.RunResumed | f.RunCancelled) and fact.run_id == run_id
    return of_run and not call_id and _is_an_answer(fact)


def _press_of(question: Question, yes: bool) -> Press:
    call = question.call_id or ""
    if not call:
        return Press("go" if yes else "stop", question.run_id)
    if question.may_have_run:
        return Press("rerun" if yes else "skip", question.run_id, call)
    return Press("allow" if yes else "deny", question.run_id, call)
