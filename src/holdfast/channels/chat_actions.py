"""Apply a person's decisions from a chat: pressed buttons and typed answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from holdfast.channels import button_action
from holdfast.channels.button_action import ActionVerb, ButtonAction
from holdfast.channels.question_text import TOO_LONG, is_too_long
from holdfast.channels.router import NO_SESSION, ChatLocation, InboundResult, text_reply
from holdfast.domain.chats import DeliveryRow, InboundRow, NewDelivery, OutboundMessage
from holdfast.domain.decisions.questions import Reply, parse_reply
from holdfast.domain.errors import (
    NoSuchRun,
    NoSuchSession,
    NoSuchToolCall,
    NoSuchTurn,
    RunRefused,
    SeqMismatch,
    ToolRefused,
)
from holdfast.domain.events import facts as f
from holdfast.domain.ids import CallId, RunId, Seq, SessionId, TurnId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.domain.shell.rules import ALLOW_ONCE, ApprovalGrant
from holdfast.domain.transcript.labels import display_title
from holdfast.engine.engine import Engine
from holdfast.store.ports import Store
from holdfast.store.session_status import OpenQuestion

_NOTHING_TO_DO = MappingProxyType({
    "undo": "There is nothing to undo.",
    "restore": "There is nothing to restore.",
    "retry": "There is nothing to answer again.",
})  # fmt: skip
ANSWERED = "This was answered already, or is no longer asked."
OVERTAKEN = "Something was said here meanwhile, so nothing was changed. Say it again if you still want it."
ANSWER_REQUIRED = "This wants an answer: press one of its buttons, or write it. /deny leaves it unanswered."
NOTHING_ASKED = "Nothing is being asked here."
_CLOSED_TEXT = "No longer asked."
_PRESS_OUTCOMES: Mapping[ActionVerb, str] = MappingProxyType({
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
"""The outcome texts for a press in a chat that no longer follows the conversation."""
_RECENT_DELIVERIES_MAX = 200
"""The chat messages that are searched for the pressed button."""
_ATTEMPTS_MAX = 100
_RUN_END_FACTS = (f.RunCompleted, f.RunCancelled, f.RunFailed)


class ChatActions:
    """The actions that a chat offers. Each is idempotent: it reads the events since its first attempt."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    async def press(
        self, row: InboundRow, location: ChatLocation, press: ButtonAction
    ) -> InboundResult | None:
        """Apply a pressed button if this chat was sent it; a forged press does nothing."""
        if not await self._was_offered(row, location, press):
            return text_reply(ANSWERED)
        if press.verb == "again":
            session_id = SessionId(press.target)
            # A button without a turn id meant the last turn of its time, which may be another now.
            turn_id = TurnId(press.subtarget)
            result = await self.change(row, session_id, turn_id, "retry") if turn_id else text_reply(ANSWERED)
        else:
            try:
                session_id, _ = await self._store.run(RunId(press.target))
            except NoSuchRun:
                return await self._close_buttons(location, press, NO_SESSION, text_reply(ANSWERED))
            result = await self._apply_press(row, session_id, press)
        return await self._close_buttons(location, press, session_id, result) if result is not None else None

    async def _was_offered(self, row: InboundRow, location: ChatLocation, press: ButtonAction) -> bool:
        """Return whether the chat shows this button, or did at the first attempt."""
        if await self._store.message_with_button(location.key, str(press)) is not None:
            return True
        # An assigned update passed this check before, and its effect removed the button.
        return bool((await self._store.assign(row.no, NO_SESSION, 0)).session_id)

    async def _apply_press(
        self, row: InboundRow, session_id: SessionId, press: ButtonAction
    ) -> InboundResult | None:
        run_id = RunId(press.target)
        assigned = await self._assign(row, session_id)
        if assigned is None:
            return None
        if await self._has_event(assigned, lambda fact: _decides(fact, run_id, press.subtarget)):
            return InboundResult()
        try:
            await self._answer(run_id, press)
        except (ToolRefused, RunRefused, NoSuchToolCall):
            return text_reply(ANSWERED)
        return InboundResult()

    async def approve(self, row: InboundRow, location: ChatLocation) -> InboundResult | None:
        """Approve the first open question."""
        return await self._answer_typed(row, location, True, "")

    async def deny(self, row: InboundRow, location: ChatLocation, reason: str) -> InboundResult | None:
        return await self._answer_typed(row, location, False, reason)

    async def reply(
        self, row: InboundRow, location: ChatLocation, text: str, attributed_text: str, key: str
    ) -> bool:
        """Answer the first open question that `text` fits; return whether it fits one.

        A free-text answer is `attributed_text`. A text that was accepted as a message before answers nothing.
        """
        assigned = await self._assign(row, location.session_id) if location.session_id else None
        if assigned is None:
            return False

        def is_same_answer(fact: object) -> bool:
            return isinstance(fact, f.QuestionAnswered) and fact.key == key

        if await self._has_event(assigned, is_same_answer):
            return True
        open_questions = [
            each for each in await self.questions(location.session_id) if each.question and each.call_id
        ]
        if not open_questions or await self._engine.commands.has_message(location.session_id, key):
            return False
        for question in open_questions:
            parsed = parse_reply(question.choices, question.multiple, text)
            if parsed is None or question.call_id is None:
                continue
            answer = parsed if parsed.choices else Reply(attributed_text)
            try:
                await self._engine.answer(question.run_id, question.call_id, answer, key)
            except (ToolRefused, RunRefused, NoSuchToolCall):
                # Answered by another person, or by another process with this same update.
                if await self._has_event(assigned, is_same_answer):
                    return True
                continue
            return True
        return False

    async def stop(self, row: InboundRow, location: ChatLocation) -> InboundResult | None:
        """Cancel the run in progress."""
        assigned = await self._assign(row, location.session_id)
        if assigned is None or not location.session_id:
            return text_reply("There is nothing to stop.") if assigned is not None else None
        if await self._has_event(assigned, lambda fact: isinstance(fact, _RUN_END_FACTS)):
            return text_reply("Stopped.")
        session = await self._store.session(location.session_id)
        if session.run_id is None:
            return text_reply("There is nothing to stop.")
        try:
            await self._engine.cancel(session.run_id)
        except RunRefused:
            return text_reply("There is nothing to stop.")
        return text_reply("Stopped.")

    async def change(
        self, row: InboundRow, session_id: SessionId, turn_id: TurnId | None, verb: str
    ) -> InboundResult | None:
        """Undo, restore or retry (`verb`), unless that is done already or a newer turn exists."""
        nothing = _NOTHING_TO_DO[verb]
        assigned = await self._assign(row, session_id)
        if assigned is None:
            return None
        if not session_id:
            return text_reply(nothing)
        for _ in range(_ATTEMPTS_MAX):
            facts, head = await self._events_since(assigned)
            if any(isinstance(fact, f.TurnsUndone | f.TurnsRestored) for fact in facts):
                return InboundResult()
            if any(isinstance(fact, f.TurnAccepted) for fact in facts):
                return text_reply(OVERTAKEN)
            try:
                await self._change_at(session_id, turn_id, verb, head)
            except SeqMismatch:
                # Mostly the text deltas of an answer moved the head; they do not matter here.
                await asyncio.sleep(0)
                continue
            except NoSuchTurn:
                return text_reply(nothing if turn_id is None else ANSWERED)
            return InboundResult()
        return text_reply(OVERTAKEN)

    async def questions(self, session_id: SessionId) -> Sequence[OpenQuestion]:
        """Return the open questions of a conversation, the oldest first."""
        status = (await self._store.session_statuses([session_id])).get(session_id) if session_id else None
        return status.questions if status is not None else ()

    async def _change_at(self, session_id: SessionId, turn_id: TurnId | None, verb: str, head: Seq) -> None:
        if verb == "undo":
            await self._engine.commands.undo(session_id, turn_id, head)
        elif verb == "restore":
            await self._engine.commands.restore(session_id, turn_id, head)
        else:
            await self._engine.replace(session_id, turn_id, None, head)

    async def _answer_typed(
        self, row: InboundRow, location: ChatLocation, is_approval: bool, reason: str
    ) -> InboundResult | None:
        assigned = await self._assign(row, location.session_id)
        if assigned is None:
            return None
        if location.session_id and await self._has_event(assigned, _is_user_decision):
            return InboundResult()
        questions = await self.questions(location.session_id)
        if not questions:
            return await self._continue(location) if is_approval else text_reply(NOTHING_ASKED)
        # An approval is no answer to a question that needs text.
        first = next((each for each in questions if not (is_approval and each.question)), None)
        if first is None:
            return text_reply(ANSWER_REQUIRED)
        if is_approval and (first.arguments_cut or is_too_long(first.name, first.arguments)):
            return text_reply(TOO_LONG)
        try:
            await self._answer(first.run_id, _action_for(first, is_approval), reason)
        except (ToolRefused, RunRefused, NoSuchToolCall):
            return text_reply(ANSWERED)
        more = len(questions) - 1
        return (
            text_reply(f"{more} more {'waits' if more == 1 else 'wait'} for your answer.")
            if more
            else InboundResult()
        )

    async def _close_buttons(
        self, location: ChatLocation, press: ButtonAction, session_id: SessionId, result: InboundResult
    ) -> InboundResult:
        """Remove the pressed buttons from messages that the chat's follower no longer updates.

        The chat has switched away from that conversation since, and may have switched back.
        """
        touched_at = location.route.touched_at if location.route is not None else 0
        is_there = bool(session_id) and session_id == location.session_id
        still_open = [
            row
            for row in await self._store.deliveries(location.key, _RECENT_DELIVERIES_MAX)
            if _has_button_for(row, press) and not (is_there and row.made_at >= touched_at)
        ]
        if not still_open:
            return result
        outcome = _CLOSED_TEXT if result.replies else _PRESS_OUTCOMES[press.verb]
        changed = tuple(_closed_delivery(row, outcome) for row in still_open)
        if is_there or result.replies:
            return replace(result, changed=changed)
        title = (await self._store.session(session_id)).title
        where = f"in “{display_title(title)}”" if title else "where it was asked: see /sessions"
        return replace(text_reply(f"{outcome} It goes on {where}."), changed=changed)

    async def _continue(self, location: ChatLocation) -> InboundResult:
        """Resume a run that a server stop interrupted."""
        session = await self._store.session(location.session_id) if location.session_id else None
        if session is None or session.run_id is None or session.status != "interrupted":
            return text_reply(NOTHING_ASKED)
        await self._engine.resume(session.run_id)
        return InboundResult()

    async def _answer(self, run_id: RunId, press: ButtonAction, reason: str = "") -> None:
        call_id = CallId(press.subtarget)
        resolve = self._engine.resolve
        match press.verb:
            case "allow" | "always":
                allowing = ApprovalGrant("session") if press.verb == "always" else ALLOW_ONCE
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
        """Answer a question with one of its choices. Raises ToolRefused if the question is closed."""
        session_id, _ = await self._store.run(run_id)
        for question in await self.questions(session_id):
            picked = dict(enumerate(question.choices, 1)).get(int(number) if number.isdecimal() else 0)
            if question.call_id == call_id and picked is not None:
                await self._engine.answer(run_id, call_id, Reply(choices=(picked,)))
                return
        raise ToolRefused(call_id=call_id, state="no longer asked", verb="be answered")

    async def _assign(self, row: InboundRow, session_id: SessionId) -> InboundRow | None:
        """Record the update's conversation and its head; return None if the update is finished."""
        try:
            head = await self._store.head(session_id) if session_id else 0
        except NoSuchSession:
            session_id, head = NO_SESSION, 0
        assigned = await self._store.assign(row.no, session_id, head)
        return assigned if assigned.state != "done" else None

    async def _has_event(self, assigned: InboundRow, matches: Callable[[object], bool]) -> bool:
        facts, _ = await self._events_since(assigned)
        return any(matches(fact) for fact in facts)

    async def _events_since(self, assigned: InboundRow) -> tuple[list[object], Seq]:
        """Return the facts since the update was assigned, without deltas, and the head."""
        facts: list[object] = []
        at = assigned.expect
        while events := await self._store.read(assigned.session_id, at, READ_EVENTS_MAX):
            facts += [event.fact for event in events if event.kind not in f.DELTA_KINDS]
            at = events[-1].seq
        return facts, at


def _has_button_for(row: DeliveryRow, press: ButtonAction) -> bool:
    """Return whether a message has this button or another for the same target."""
    found = [button_action.parse_action(button.press) for button in row.body.buttons]
    return any(
        each is not None and (each.target, each.subtarget) == (press.target, press.subtarget)
        for each in found
    )


def _closed_delivery(row: DeliveryRow, outcome: str) -> NewDelivery:
    return NewDelivery(row.source, row.piece, row.kind, OutboundMessage(f"{row.body.text}\n\n*{outcome}*"))


def _is_user_decision(fact: object) -> bool:
    """Return whether a fact is a person's decision on any question."""
    of_run, of_call = f.RunResumed | f.RunCancelled, f.ApprovalResolved | f.ToolResolved
    resolved = of_run | of_call | f.QuestionAnswered | f.QuestionClosed
    return isinstance(fact, resolved) and fact.by == "user"


def _decides(fact: object, run_id: RunId, call_id: str) -> bool:
    """Return whether a fact is a person's decision on this call or run."""
    if isinstance(fact, f.ApprovalResolved | f.ToolResolved | f.QuestionAnswered | f.QuestionClosed):
        return fact.by == "user" and fact.call_id == call_id
    of_run = isinstance(fact, f.RunResumed | f.RunCancelled) and fact.run_id == run_id
    return of_run and not call_id and _is_user_decision(fact)


def _action_for(question: OpenQuestion, is_approval: bool) -> ButtonAction:
    call = question.call_id or ""
    if not call:
        return ButtonAction("go" if is_approval else "stop", question.run_id)
    if question.may_have_run:
        return ButtonAction("rerun" if is_approval else "skip", question.run_id, call)
    return ButtonAction("allow" if is_approval else "deny", question.run_id, call)
