"""Turn a conversation's events into a chat's messages. Pure: the same events give the same messages.

A plan starts at the chat's cursor and may start there again: it then plans the same messages under the same
names. If a planned message changes, the sent one is edited.
"""

import hashlib
import re
from collections import Counter

import msgspec
from msgspec.structs import replace

from holdfast.channels import question_text
from holdfast.channels.activity import activity_line
from holdfast.channels.button_action import ButtonAction
from holdfast.channels.question_text import ChatQuestion
from holdfast.channels.splitting import split
from holdfast.channels.streaming_reply import CONTINUATION_MARK, StreamingReply
from holdfast.channels.turn_removals import RemovedTurns, RestoredTurns
from holdfast.domain.chats import TERMINAL_KEY, Button, DeliveryKind, NewDelivery, OutboundMessage
from holdfast.domain.decisions.questions import ASK_TOOL as ASK_USER
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, UnknownFact
from holdfast.domain.events.parts import AnyPart, File, message_text
from holdfast.domain.files import file_parts
from holdfast.domain.ids import MessageId, RunId, Seq, SessionId
from holdfast.domain.limits import KEY_CHARS_MAX
from holdfast.domain.ranges import expand_ranges

_QUOTED_CHARS_MAX = 280
_PAGE_KEY = re.compile(r"[0-9a-f]{32}")
_KEY_PART_CHARS_MAX = KEY_CHARS_MAX // 2 - 1
_SPARE_CHARS = 64
"""Room in each piece for the note that it was resent, or for the continuation mark."""


def send_key(route: str, update_id: str) -> str:
    """Return the idempotency key of a message from a chat: one update has one key."""
    if len(update_id) > _KEY_PART_CHARS_MAX:
        update_id = _short(update_id)
    return update_id + _key_suffix(route)


def _key_suffix(route: str) -> str:
    """Return the suffix of the keys of a chat's own messages."""
    return f"@{route if len(route) <= _KEY_PART_CHARS_MAX else _short(route)}"


def _short(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def split_outgoing(body: OutboundMessage, chars_max: int) -> list[OutboundMessage]:
    """Split a message to fit the app; its buttons and files are on the last part."""
    found = [OutboundMessage(text) for text in split(body.text, chars_max - _SPARE_CHARS)]
    if not found and not body.files:
        return []
    last = found.pop() if found else OutboundMessage()
    return [*found, replace(last, buttons=body.buttons, files=body.files, names=body.names)]


class _PlannedRun(msgspec.Struct):
    turn: int
    turn_id: str
    status: str = "working"
    tools: Counter[str] = msgspec.field(default_factory=Counter)
    first_call: str = ""


class ReplyPlan:
    """The messages of one conversation for one chat. `add` each event once, in order, from the cursor on."""

    def __init__(self, route: str, session_id: SessionId, cursor: Seq, chars_max: int, buttons: bool) -> None:
        self._route = route
        self._session_id = session_id
        self._chars_max = chars_max
        self._buttons = buttons
        self._cursor = cursor
        self.seen = cursor
        """The last event that was added."""
        self._runs: dict[RunId, _PlannedRun] = {}
        self._replies: dict[MessageId, StreamingReply] = {}
        self._questions: dict[str, ChatQuestion] = {}
        self._calls: dict[str, f.ToolIntended] = {}
        self._removal_reason: str = ""
        self._removed_turns: list[RemovedTurns] = []
        self._removals: list[RemovedTurns | RestoredTurns] = []
        self._continued_at: Seq = 0
        self._new_deliveries: dict[tuple[str, int], NewDelivery] = {}

    @property
    def completed_seq(self) -> Seq:
        """Return the sequence up to which all messages are final: those events need no second read."""
        if self._continued_at:
            # Until the chat has moved: a new plan must read this event again.
            return max(self._cursor, self._continued_at - 1)
        return self._cursor if self._runs else self.seen

    @property
    def has_successor(self) -> bool:
        """Return whether the conversation has a successor."""
        return bool(self._continued_at)

    @property
    def is_working(self) -> bool:
        """Return whether a run is in progress."""
        return any(run.status == "working" for run in self._runs.values())

    def take_deliveries(self) -> list[NewDelivery]:
        """Return and clear the messages that are new or changed since the last call."""
        fresh = list(self._new_deliveries.values())
        self._new_deliveries.clear()
        return fresh

    def take_removals(self) -> list[RemovedTurns | RestoredTurns]:
        """Return and clear the removals and restores that the chat does not show yet."""
        found, self._removals = self._removals, []
        return found

    @property
    def has_unseen_text(self) -> bool:
        """Return whether an answer in progress has pieces that the chat has not seen."""
        return any(reply.has_unseen for reply in self._replies.values())

    def take_first_text(self) -> list[NewDelivery]:
        """Return the unseen pieces of an answer in progress, if there are any."""
        for message_id, reply in self._replies.items():
            if reply.has_unseen:
                pieces = reply.take_unseen()
                return [NewDelivery(message_id, n, "answer", OutboundMessage(text)) for n, text in pieces]
        return []

    def live_delivery(self) -> NewDelivery | None:
        """Return the shown piece of an answer in progress with its current text."""
        for message_id, reply in self._replies.items():
            if (piece := reply.shown_piece) is not None:
                return NewDelivery(message_id, piece[0], "answer", OutboundMessage(piece[1]))
        return None

    @property
    def unfinished(self) -> list[MessageId]:
        """Return the answers in progress."""
        return list(self._replies)

    def mark_shown(self, message_id: MessageId, piece: int) -> None:
        """Mark a piece as planned before this plan started."""
        self._replies[message_id].mark_shown(piece)

    def take_switch_deliveries(self) -> list[NewDelivery]:
        """Return the last state of an answer in progress, for a chat that switches away."""
        for message_id, reply in self._replies.items():
            if reply.is_shown and (pieces := reply.take_unseen()):
                n, text = pieces.pop()
                pieces.append(
                    (n, text.removesuffix(CONTINUATION_MARK) + "\n\n*It goes on in that conversation.*")
                )
                return [NewDelivery(message_id, n, "answer", OutboundMessage(text)) for n, text in pieces]
        return []

    def add(self, event: Event) -> None:
        """Add the next event."""
        self.seen = event.seq
        fact = event.fact
        match fact:
            case UnknownFact():
                pass
            case f.TextAppended():
                self._append_text(fact)
            case f.ReasoningAppended() | f.ToolArgumentsAppended():
                self._mark_break(fact)
            case f.MessageSettled():
                self._settle(fact)
            case f.TurnsUndone() | f.TurnsRestored():
                self._add_removal(event.seq, fact)
            case f.TurnAccepted() | f.TurnQueued() | f.TurnDequeued() | f.TurnSteered():
                self._add_turn(fact)
            case f.ToolIntended() | f.ToolSettled():
                self._add_call(fact)
            case f.ApprovalRequested() | f.ApprovalResolved() | f.ToolInDoubt() | f.ToolResolved():
                self._add_question(event.seq, fact)
            case f.QuestionAsked() | f.QuestionAnswered() | f.QuestionClosed():
                self._add_agent_question(fact)
            case _:
                self._add_run(event.seq, fact)

    # Turns.

    def _add_turn(self, fact: f.AnyFact) -> None:
        match fact:
            case f.TurnAccepted():
                if fact.run_id is not None:
                    self._runs[fact.run_id] = _PlannedRun(fact.turn, fact.turn_id)
                    self._add_user_message(fact)
                self._removal_reason = ""
                self._removed_turns = [each.closed_before(fact.turn) for each in self._removed_turns]
                self._removals = [
                    each.closed_before(fact.turn) if isinstance(each, RemovedTurns) else each
                    for each in self._removals
                ]
            case f.TurnQueued() | f.TurnDequeued():
                run = self._run(fact.run_id, fact.turn)
                run.status = "queued" if isinstance(fact, f.TurnQueued) else "working"
            case f.TurnSteered():
                # The message is planned already; its turn is part of another now.
                self._runs = {name: run for name, run in self._runs.items() if run.turn != fact.from_turn}

    def _add_removal(self, seq: Seq, fact: f.TurnsUndone | f.TurnsRestored) -> None:
        match fact:
            case f.TurnsUndone():
                self._removal_reason = fact.reason
                self._remove_turns(RemovedTurns(fact.from_turn, fact.reason))
                text = {"undo": "Removed.", "retry": "Answering again.", "edit": ""}[fact.reason]
            case f.TurnsRestored():
                restored = frozenset(expand_ranges(fact.turns))
                if fact.from_turn:
                    self._remove_turns(RemovedTurns(fact.from_turn, "undo"))
                self._removed_turns = [each.with_restored(restored) for each in self._removed_turns]
                self._removals.append(RestoredTurns(restored))
                text = "Restored." if fact.reason == "undo" else "Switched to another version."
        if text:
            self._put_delivery(f"undone:{seq}", "notice", OutboundMessage(f"*{text}*"))

    def _remove_turns(self, removed: RemovedTurns) -> None:
        self._removed_turns.append(removed)
        self._removals.append(removed)

    def _add_user_message(self, fact: f.TurnAccepted) -> None:
        """Show a user message that came through another client."""
        key = fact.key or ""
        if key.endswith(_key_suffix(self._route)) or self._removal_reason == "retry":
            return
        origin = "edited" if self._removal_reason == "edit" else _message_origin(key)
        text = _one_line(fact.parts)
        self._put_delivery(fact.message_id, "notice", OutboundMessage(f"> **You** ({origin}): {text}"))

    # Answers.

    def _append_text(self, fact: f.TextAppended) -> None:
        # Answers that began before the cursor are skipped: their beginning is unknown here.
        reply = self._replies.get(fact.message_id)
        if reply is None:
            return
        if reply.is_blank and fact.text.strip():
            self._report_tools(fact.run_id)
        reply.add(fact.text)

    def _mark_break(self, fact: f.ReasoningAppended | f.ToolArgumentsAppended) -> None:
        reply = self._replies.get(fact.message_id)
        # Empty reasoning causes no break.
        if reply is not None and (fact.text or isinstance(fact, f.ToolArgumentsAppended)):
            reply.mark_break()

    def _settle(self, fact: f.MessageSettled) -> None:
        self._replies.pop(fact.message_id, None)
        # A message without a run is a copy from another conversation.
        if fact.role != "assistant" or fact.late or fact.run_id is None:
            return
        files = file_parts(fact.parts)
        blobs, names = tuple(each.blob for each in files), tuple(each.name for each in files)
        body = OutboundMessage(message_text(fact.parts), files=blobs, names=names)
        bodies = split_outgoing(body, self._chars_max)
        if bodies:
            self._report_tools(fact.run_id)
        removed = next((each for each in self._removed_turns if each.contains(fact.turn)), None)
        for n, body in enumerate(bodies):
            self._put_delivery(
                fact.message_id, "answer", body if removed is None else removed.mark_removed(body), n
            )

    # Calls and questions about them.

    def _add_call(self, fact: f.ToolIntended | f.ToolSettled) -> None:
        if isinstance(fact, f.ToolIntended):
            self._calls[fact.call_id] = fact
            self._run(fact.run_id, fact.turn)
            return
        self._calls.pop(fact.call_id, None)
        self._close_questions(fact.call_id, "")
        # A question to the user is planned already.
        ran = fact.outcome in ("done", "failed", "unknown") and fact.name != ASK_USER
        if ran and fact.run_id in self._runs and not fact.late:
            run = self._runs[fact.run_id]
            run.tools[fact.name] += 1
            run.first_call = run.first_call or fact.call_id

    def _add_question(self, seq: Seq, fact: f.AnyFact) -> None:
        match fact:
            case f.ApprovalRequested():
                self._report_tools(fact.run_id)
                call = self._calls.get(fact.call_id)
                self._ask(question_text.approval_question(fact, call))
            case f.ToolInDoubt():
                self._ask(question_text.doubt_question(fact, self._calls.get(fact.call_id), seq))
            case f.ApprovalResolved():
                self._close_questions(fact.call_id, question_text.approval_outcome_text(fact))
            case f.ToolResolved():
                self._close_questions(fact.call_id, question_text.doubt_outcome_text(fact))

    def _add_agent_question(self, fact: f.QuestionAsked | f.QuestionAnswered | f.QuestionClosed) -> None:
        match fact:
            case f.QuestionAsked():
                self._report_tools(fact.run_id)
                self._ask(question_text.agent_question(fact))
            case f.QuestionAnswered():
                self._close_questions(fact.call_id, question_text.answer_outcome_text(fact))
            case f.QuestionClosed():
                self._close_questions(fact.call_id, question_text.closed_outcome_text(fact))

    def _ask(self, question: ChatQuestion) -> None:
        self._questions[question.source] = question
        body = OutboundMessage(question.text, question.buttons if self._buttons else ())
        if not self._buttons and question.typing_hint:
            body = OutboundMessage(f"{question.text}\n\n{question.typing_hint}")
        self._put_delivery(question.source, "question", body)

    def _close_questions(self, about: str, outcome: str) -> None:
        """Close the questions of a run or call: remove their buttons and add the outcome."""
        for question in [each for each in self._questions.values() if about in (each.run_id, each.call_id)]:
            del self._questions[question.source]
            closed_text = outcome or question.closed_text
            self._put_delivery(
                question.source, "question", OutboundMessage(f"{question.text}\n\n*{closed_text}*")
            )

    def _close_resume_questions(self, run_id: RunId) -> None:
        """Replace the questions whether to resume a run, after it was resumed."""
        for question in [
            each for each in self._questions.values() if each.run_id == run_id and each.resumed_text
        ]:
            del self._questions[question.source]
            self._put_delivery(question.source, "question", OutboundMessage(f"*{question.resumed_text}*"))

    # Runs.

    def _add_run(self, seq: Seq, fact: f.AnyFact) -> None:
        match fact:
            case f.RunStarted():
                self._run(fact.run_id).status = "working"
            case f.ModelStepStarted():
                self._run(fact.run_id, fact.turn).status = "working"
                self._replies[fact.message_id] = StreamingReply(self._chars_max - _SPARE_CHARS)
            case f.RunResumed():
                self._run(fact.run_id).status = "working"
                self._close_resume_questions(fact.run_id)
            case f.RunWaiting():
                self._run(fact.run_id).status = "waiting"
                self._report_tools(fact.run_id)
                if fact.reason == "limit":
                    self._ask(question_text.limit_question(fact, seq))
            case f.RunInterrupted():
                self._run(fact.run_id, fact.turn).status = "waiting"
                self._ask(question_text.restart_question(fact))
            case f.RunCompleted() | f.RunCancelled() | f.RunFailed():
                self._end(fact)
            case f.SessionContinued():
                self._runs.clear()
                self._continued_at = seq
                self._put_delivery(
                    f"continued:{self._session_id}", "notice",
                    OutboundMessage("*This goes on in a new conversation, which begins with a summary.*"),
                )  # fmt: skip
            case f.SessionDeleted():
                self._runs.clear()
                self._put_delivery(
                    f"deleted:{self._session_id}",
                    "notice",
                    OutboundMessage("*This conversation was deleted.*"),
                )

    def _end(self, fact: f.RunCompleted | f.RunCancelled | f.RunFailed) -> None:
        self._report_tools(fact.run_id)
        self._close_questions(fact.run_id, "")
        run = self._runs.pop(fact.run_id, None)
        if not isinstance(fact, f.RunFailed):
            return
        # The turn is unknown if it began before the cursor: a button could then retry another turn.
        turn_id = run.turn_id if run is not None else ""
        again = ButtonAction("again", self._session_id, turn_id)
        buttons = (Button("Try again", str(again)),) if self._buttons and turn_id else ()
        typed = "" if buttons else "\n\nType /retry to try again."
        text = f"This could not be answered: {fact.failure.detail}{typed}"
        self._put_delivery(f"failed:{fact.run_id}", "question", OutboundMessage(text, buttons))

    def _report_tools(self, run_id: RunId) -> None:
        run = self._runs.get(run_id)
        if run is not None and run.tools:
            self._put_delivery(
                f"tools:{run.first_call}", "notice", OutboundMessage(f"*{activity_line(run.tools)}*")
            )
            run.tools, run.first_call = Counter(), ""

    def _run(self, run_id: RunId, turn: int = 0) -> _PlannedRun:
        return self._runs.setdefault(run_id, _PlannedRun(turn, ""))

    def _put_delivery(self, source: str, kind: DeliveryKind, body: OutboundMessage, piece: int = 0) -> None:
        # A changed message keeps its position in the order.
        self._new_deliveries[source, piece] = NewDelivery(source, piece, kind, body)


def _message_origin(key: str) -> str:
    """Return the client that a message came from, according to its key."""
    _, at, route = key.rpartition("@agent:")
    if at:
        channel = [*route.split(":"), ""][1]
        return f"from {channel[:1].upper()}{channel[1:]}"
    if key.startswith(TERMINAL_KEY):
        return "from the terminal"
    return "from the page" if _PAGE_KEY.fullmatch(key) else "from elsewhere"


def _one_line(parts: tuple[AnyPart, ...]) -> str:
    text = " ".join(message_text(parts).split())
    names = [part.name for part in parts if isinstance(part, File)]
    cut = text if len(text) <= _QUOTED_CHARS_MAX else text[:_QUOTED_CHARS_MAX] + "…"
    return " ".join(filter(None, (cut, f"[{', '.join(names)}]" if names else "")))
