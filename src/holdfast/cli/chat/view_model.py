"""The view model of a conversation in the terminal: a pure fold of its events, without screen or clock.

Complete items are printed once and for good; what still changes is redrawn below them.
"""

import msgspec
from msgspec.structs import replace

from holdfast.cli.chat.interruptions import Interruption, Interruptions, continuation_notice
from holdfast.cli.chat.markdown_blocks import complete_length
from holdfast.cli.chat.response_data import (
    EventData,
    FeedUpdate,
    MessageData,
    MessagePageData,
    QuestionData,
    RunData,
    SessionData,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import UnknownFact
from holdfast.domain.events.parts import AnyPart, File, Reasoning, Text, ToolCall
from holdfast.domain.shell.rules import ANY
from holdfast.domain.state.rows import TERMINAL_STATUSES, MessageStatus, RunStatus, SessionStatus
from holdfast.domain.transcript.labels import LATE_LABEL, NOTICES

SERVER_GONE = "The server has gone. What you write is sent when it is back; looking for it…"
SERVER_BACK = "The server is back."
OWN_SERVER_STARTED = "No server came back, so this chat does its work itself, until you leave."
OUTPUT_CHARS_MAX = 2_000
"""The end of a running tool's output that is kept for display."""


class UserMessageItem(msgspec.Struct, frozen=True):
    text: str
    files: tuple[str, ...] = ()


class MarkdownBlock(msgspec.Struct, frozen=True):
    """A complete block of an answer, in Markdown."""

    text: str


class ThinkingText(msgspec.Struct, frozen=True):
    text: str


class FinishedToolCall(msgspec.Struct, frozen=True):
    name: str
    arguments: str
    outcome: f.ToolOutcome
    ms: int = 0
    output: str = ""


class Notice(msgspec.Struct, frozen=True):
    """A line beside the conversation. `bad`: an error; `plain`: the output of a command."""

    text: str
    bad: bool = False
    at: int = 0
    plain: bool = False


PrintedItem = UserMessageItem | MarkdownBlock | ThinkingText | FinishedToolCall | Notice


class ConnectionChange(msgspec.Struct, frozen=True):
    """A lost or regained connection to a server; `is_own`: the server runs inside this chat."""

    is_connected: bool
    is_own: bool = False


class StreamingMessage(msgspec.Struct):
    """A message that is being streamed; `has_thought`: its thinking so far is printed."""

    run_id: str
    text: str = ""
    printed: int = 0
    thinking: str = ""
    has_thought: bool = False

    @property
    def rest(self) -> str:
        return self.text[self.printed :]


class OpenToolCall(msgspec.Struct):
    run_id: str
    name: str
    arguments: str
    started_at: int = 0
    output: str = ""
    is_asked: bool = False


class ConversationViewModel:
    """One conversation: call `load_page`, then `apply_event` for each event; both return items to print."""

    def __init__(self, session: SessionData, model: str = "") -> None:
        self.session_id = session.id
        self.title = session.title
        self.opening = session.opening
        """The start of its first message, shown while it has no title."""
        self.model = model
        self.agent = session.agent
        self.turns = session.turns
        self.usage = session.usage
        self.cursor = 0
        self.questions: tuple[QuestionData, ...] = ()
        self.streaming: dict[str, StreamingMessage] = {}
        self.open_calls: dict[str, OpenToolCall] = {}
        self.queued: dict[str, UserMessageItem] = {}
        """Queued messages by run, printed when their run starts."""
        self._runs: dict[str, RunStatus] = {}
        self._awaiting_resume: set[str] = set()
        self._interruptions = Interruptions()
        self._is_retrying = False
        self._is_queue_paused = False
        """True if the last answer was stopped or failed, so that queued messages wait for a person."""

    @property
    def status(self) -> SessionStatus:
        """Return the status, from the events alone."""
        open_runs = {status for run, status in self._runs.items() if status not in TERMINAL_STATUSES}
        if "waiting" in open_runs or self._awaiting_resume or self.unanswered:
            return "needs_you"
        if open_runs & {"running", "accepted", "queued"}:
            return "working"
        return "interrupted" if open_runs else "idle"

    @property
    def unanswered(self) -> list[str]:
        """Return the runs of queued messages that wait for a person, oldest first."""
        is_paused = self._is_queue_paused and all(status == "queued" for status in self._runs.values())
        return list(self._runs) if is_paused else []

    @property
    def pending_questions(self) -> tuple[QuestionData, ...]:
        """Return the open questions of the feed, or else those about paused or interrupted runs."""
        if self.questions:
            return tuple(map(self._with_full_arguments, self.questions))
        if unanswered_runs := self.unanswered:
            reason = f"{format_message_count(len(unanswered_runs))} not answered yet."
            return (
                QuestionData(
                    self.session_id, unanswered_runs[0], "question", reason, unanswered=len(unanswered_runs)
                ),
            )
        stopped = NOTICES["interrupted"]
        return tuple(
            QuestionData(self.session_id, run_id, "question", stopped)
            for run_id in sorted(self._awaiting_resume)
        )

    def _with_full_arguments(self, question: QuestionData) -> QuestionData:
        """Return the question with the call's full arguments, if the feed has cut them."""
        call = self.open_calls.get(question.call_id or "")
        if not question.arguments_cut or call is None:
            return question
        return replace(question, arguments=call.arguments, arguments_cut=False)

    @property
    def interruption_notices(self) -> list[str]:
        """Return the notices of interrupted answers that have not continued."""
        return self._interruptions.current_notices(set() if self.questions else self._awaiting_resume)

    @property
    def run_id(self) -> str | None:
        """Return the run to stop: the first that has not ended."""
        return next((run for run, status in self._runs.items() if status not in TERMINAL_STATUSES), None)

    def load_page(self, page: MessagePageData, messages_max: int) -> list[PrintedItem]:
        """Load a page and return its last messages to print; later events continue from it."""
        self.cursor = page.head
        for run in page.runs:
            self._load_run(run)
        self._is_queue_paused = True
        arguments = {
            part.call_id: part.arguments
            for message in page.messages
            for part in message.parts
            if isinstance(part, ToolCall)
        }
        failure_notices = {
            run.id: _failure_notice(run.failure) for run in page.runs if run.status in ("failed", "cancelled")
        }
        last = {message.run_id: message.id for message in page.messages if message.live}
        items: list[list[PrintedItem]] = []
        for message in page.messages:
            message_items = self._load_message(message, arguments, page.messages) if message.live else []
            failure_notice = (
                failure_notices.get(message.run_id or "") if last.get(message.run_id) == message.id else None
            )
            # After a notice about the interruption, "Stopped." would repeat it.
            if failure_notice is not None and (failure_notice.bad or message.role != "notice"):
                message_items.append(failure_notice)
            if message_items:
                items.append(message_items)
        return [item for message_items in items[-messages_max:] for item in message_items]

    def user_texts(self, page: MessagePageData) -> list[str]:
        """Return the texts of user messages, oldest first."""
        return [text for each in page.messages if each.role == "user" and (text := _join_text(each.parts))]

    def apply_feed_update(self, update: FeedUpdate) -> None:
        """Apply the feed's questions and session data."""
        self.questions = update.questions
        if update.session is not None:
            self.title, self.turns, self.usage = (
                update.session.title,
                update.session.turns,
                update.session.usage,
            )
            self.opening, self.agent = update.session.opening, update.session.agent

    def apply_connection_change(self, change: ConnectionChange) -> list[PrintedItem]:
        """Return the notice of the change; print streamed text before the notice of a lost server."""
        if change.is_connected:
            return [Notice(OWN_SERVER_STARTED if change.is_own else SERVER_BACK)]
        return [*self.flush_streaming(), Notice(SERVER_GONE)]

    def flush_streaming(self) -> list[PrintedItem]:
        """Return the streamed text that is not printed yet, complete or not."""
        items: list[PrintedItem] = []
        for message in self.streaming.values():
            items += _print_thinking(message) + _print_text(message, len(message.rest))
        return items

    def apply_event(self, event: EventData) -> list[PrintedItem]:
        """Apply the next event and return the items to print."""
        self.cursor = event.seq
        fact = event.fact
        before = self._continuation_notices(fact, event.at)
        return [*before, *self._apply_fact(fact, event.at)] if before else self._apply_fact(fact, event.at)

    def _continuation_notices(self, fact: f.AnyFact | UnknownFact, at: int) -> list[PrintedItem]:
        if not isinstance(fact, f.ModelStepStarted | f.ToolIntended | f.TurnSteered):
            return []
        return [
            Notice(notice, at=at) for notice in self._interruptions.resolve_continued(fact.turn, fact.place)
        ]

    def _apply_fact(self, fact: f.AnyFact | UnknownFact, at: int) -> list[PrintedItem]:
        match fact:
            case UnknownFact():
                return []
            case f.TextAppended() | f.ReasoningAppended() | f.ModelStepStarted() | f.MessageSettled():
                return self._apply_message_fact(fact)
            case f.RunInterrupted() | f.RunCancelled() | f.RunFailed() | f.RunCompleted():
                return self._end_run(fact)
            case f.RunStarted() | f.RunWaiting() | f.RunResumed():
                return self._set_run_status(fact)
            case f.TurnsUndone() | f.TurnsRestored():
                return self._apply_turns_change(fact)
            case f.TurnAccepted() | f.TurnQueued() | f.TurnDequeued() | f.TurnSteered():
                return self._apply_turn_fact(fact)
            case _:
                return self._apply_tool_fact(fact, at) or self._apply_other_fact(fact)

    def _apply_message_fact(
        self, fact: f.TextAppended | f.ReasoningAppended | f.ModelStepStarted | f.MessageSettled
    ) -> list[PrintedItem]:
        if isinstance(fact, f.MessageSettled):
            return self._settle_message(fact)
        message = self.streaming.setdefault(fact.message_id, StreamingMessage(fact.run_id))
        match fact:
            case f.ModelStepStarted():
                self.model = fact.model or self.model
            case f.ReasoningAppended():
                message.thinking += fact.text
            case f.TextAppended():
                items = _print_thinking(message)
                message.text += fact.text
                return items + _print_text(message, complete_length(message.rest))
        return []

    def _settle_message(self, fact: f.MessageSettled) -> list[PrintedItem]:
        """Replace the streamed text by the settled one and return what is not printed yet."""
        message = self.streaming.pop(fact.message_id, None) or StreamingMessage(fact.run_id or "")
        if fact.role != "assistant":
            return []
        text = "".join(part.text for part in fact.parts if isinstance(part, Text))
        if not message.thinking and not message.text and not message.has_thought:
            message.thinking = "".join(part.text for part in fact.parts if isinstance(part, Reasoning))
        items: list[PrintedItem] = [Notice(LATE_LABEL)] if fact.late else []
        items += _print_thinking(message)
        if not text.startswith(message.text[: message.printed]):
            message.printed = 0
        message.text = text
        return items + _print_text(message, len(message.rest))

    def _end_run(
        self, fact: f.RunInterrupted | f.RunCancelled | f.RunFailed | f.RunCompleted
    ) -> list[PrintedItem]:
        items: list[PrintedItem] = self._dequeue_message(fact.run_id)
        for message_id in [key for key, each in self.streaming.items() if each.run_id == fact.run_id]:
            message = self.streaming.pop(message_id)
            items += _print_thinking(message) + _print_text(message, len(message.rest))
        self._awaiting_resume.discard(fact.run_id)
        self._is_queue_paused = not isinstance(fact, f.RunCompleted)
        match fact:
            case f.RunInterrupted():
                self._runs[fact.run_id] = "interrupted"
                if fact.asks:
                    self._awaiting_resume.add(fact.run_id)
                self._interruptions.add(Interruption(fact.run_id, fact.turn, fact.place))
                return items
            case f.RunFailed():
                end_notices = [_failure_notice(fact.failure)]
            case f.RunCancelled():
                end_notices = [_failure_notice(None)]
            case _:
                end_notices = []
        items += [
            *(Notice(notice) for notice in self._interruptions.resolve_ended(fact.run_id)),
            *end_notices,
        ]
        self._runs.pop(fact.run_id, None)
        self.open_calls = {key: call for key, call in self.open_calls.items() if call.run_id != fact.run_id}
        return items

    def _set_run_status(self, fact: f.RunStarted | f.RunWaiting | f.RunResumed) -> list[PrintedItem]:
        self._runs[fact.run_id] = "waiting" if isinstance(fact, f.RunWaiting) else "running"
        self._awaiting_resume.discard(fact.run_id)
        self._is_queue_paused = False
        return self._dequeue_message(fact.run_id)

    def _dequeue_message(self, run_id: str) -> list[PrintedItem]:
        message = self.queued.pop(run_id, None)
        return [] if message is None else [message]

    def _apply_turn_fact(
        self, fact: f.TurnAccepted | f.TurnQueued | f.TurnDequeued | f.TurnSteered
    ) -> list[PrintedItem]:
        match fact:
            case f.TurnAccepted():
                return self._accept_turn(fact)
            case f.TurnQueued():
                self._runs[fact.run_id] = "queued"
            case f.TurnDequeued():
                self._runs[fact.run_id] = "accepted"
                self._is_queue_paused = False
                return self._dequeue_message(fact.run_id)
            case f.TurnSteered():
                self.queued = {
                    run: message
                    for run, message in self.queued.items()
                    if message != _user_message(fact.parts)
                }
                return [_user_message(fact.parts)]
        return []

    def _apply_turns_change(self, fact: f.TurnsUndone | f.TurnsRestored) -> list[PrintedItem]:
        if isinstance(fact, f.TurnsRestored):
            return [Notice("Restored." if fact.reason == "undo" else "Switched to another version.")]
        self._is_retrying = fact.reason == "retry"
        notices = {
            "undo": "Removed, with what came after it. /restore brings it back.",
            "retry": "Answering again.",
        }
        return [Notice(notices.get(fact.reason, "Edited:"))]

    def _accept_turn(self, fact: f.TurnAccepted) -> list[PrintedItem]:
        # A retry repeats the same message, which is not printed twice.
        messages = [] if fact.replaces and self._is_retrying else [_user_message(fact.parts)]
        is_busy = any(status in ("running", "accepted", "interrupted") for status in self._runs.values())
        if fact.run_id is not None:
            self._runs.setdefault(fact.run_id, "accepted")
            if is_busy and messages:
                self.queued[fact.run_id] = messages[0]
                return []
        return [*messages]

    def _apply_tool_fact(self, fact: object, at: int) -> list[PrintedItem]:
        match fact:
            case f.ToolIntended():
                self.open_calls[fact.call_id] = OpenToolCall(fact.run_id, fact.name, fact.arguments)
            case f.ToolStarted() if fact.call_id in self.open_calls:
                self.open_calls[fact.call_id].started_at = at
                self.open_calls[fact.call_id].is_asked = False
            case f.ToolOutputAppended() if fact.call_id in self.open_calls:
                call = self.open_calls[fact.call_id]
                call.output = (call.output + fact.text)[-OUTPUT_CHARS_MAX:]
            case f.ApprovalRequested() | f.ToolInDoubt() | f.QuestionAsked() if (
                fact.call_id in self.open_calls
            ):
                self.open_calls[fact.call_id].is_asked = True
            case f.ApprovalResolved() if fact.call_id in self.open_calls:
                return self._resolve_approval(fact)
            case f.QuestionAnswered() | f.QuestionClosed():
                self.questions = tuple(each for each in self.questions if each.call_id != fact.call_id)
            case f.ToolSettled():
                open_call = self.open_calls.pop(fact.call_id, None)
                arguments = fact.arguments or (open_call.arguments if open_call else "")
                return [FinishedToolCall(fact.name, arguments, fact.outcome, fact.ms, _join_text(fact.parts))]
        return []

    def _resolve_approval(self, fact: f.ApprovalResolved) -> list[PrintedItem]:
        self.open_calls[fact.call_id].is_asked = False
        self.questions = tuple(each for each in self.questions if each.call_id != fact.call_id)
        if fact.by == "policy":
            return []
        if fact.decision == "deny":
            return [Notice("Not allowed." + (f" {fact.reason}" if fact.reason else ""))]
        if fact.scope == "once":
            return [Notice("Allowed.")]
        allowed = fact.rule if fact.rule != ANY else f"every use of {self.open_calls[fact.call_id].name}"
        reach = "Always allowed" if fact.scope == "always" else "Allowed in this conversation"
        return [Notice(f"{reach}: {allowed}. `holdfast rules list` shows all that is allowed.")]

    def _apply_other_fact(self, fact: object) -> list[PrintedItem]:
        match fact:
            case f.SessionRenamed():
                self.title = fact.title
            case f.SessionDeleted():
                return [Notice("This conversation was deleted.", bad=True)]
            case f.SessionCleared():
                return [Notice("What was said before this is no longer shown to the model.")]
            case f.RecoveryPending():
                self._interruptions.set_status(fact.turn, fact.place, "pending")
            case f.RecoveryFinished():
                status: MessageStatus = "recovered" if fact.recovered else "final"
                if not self._interruptions.set_status(fact.turn, fact.place, status):
                    return [Notice(NOTICES[status])]
            case f.ModelStepRetried():
                return [Notice(f"The model did not answer ({fact.failure.detail}); trying again.")]
        return []

    def _load_run(self, run: RunData) -> None:
        if run.status not in TERMINAL_STATUSES:
            self._runs[run.id] = run.status
        if run.status == "interrupted":
            self._awaiting_resume.add(run.id)

    def _load_message(
        self, message: MessageData, arguments: dict[str, str], messages: tuple[MessageData, ...]
    ) -> list[PrintedItem]:
        if message.role == "user":
            return [_user_message(message.parts)]
        if message.role == "tool":
            name, call_arguments = message.name or "", message.arguments or arguments.get(message.id, "")
            if message.outcome is None:
                self.open_calls[message.id] = OpenToolCall(message.run_id or "", name, call_arguments)
                return []
            return [
                FinishedToolCall(
                    name, call_arguments, message.outcome, message.ms or 0, _join_text(message.parts)
                )
            ]
        if message.role == "notice":
            return self._load_interruption(message, messages)
        streaming = StreamingMessage(message.run_id or "", _join_text(message.parts, ""))
        if message.status == "streaming":
            self.streaming[message.id] = streaming
            return _print_text(streaming, complete_length(streaming.rest))
        return _print_text(streaming, len(streaming.rest))

    def _load_interruption(self, notice: MessageData, messages: tuple[MessageData, ...]) -> list[PrintedItem]:
        of_its_turn = (each for each in messages if each.turn == notice.turn and each.role != "notice")
        after = next((each for each in of_its_turn if each.place > notice.place), None)
        if after is not None:
            return [Notice(continuation_notice(notice.status), at=after.at)]
        if notice.run_id in self._runs:
            self._interruptions.add(Interruption(notice.run_id, notice.turn, notice.place, notice.status))
            return []
        return [Notice(NOTICES[notice.status])]


def format_message_count(count: int) -> str:
    """Return the number of messages with the verb."""
    return "One message is" if count == 1 else f"{count:,} messages are"


def _print_text(message: StreamingMessage, chars: int) -> list[PrintedItem]:
    """Mark the next `chars` characters as printed and return them."""
    text = message.rest[:chars]
    message.printed += chars
    return [MarkdownBlock(text)] if text.strip() else []


def _print_thinking(message: StreamingMessage) -> list[PrintedItem]:
    """Return the thinking as an item to print, and clear it."""
    thinking, message.thinking = message.thinking, ""
    message.has_thought = message.has_thought or bool(thinking.strip())
    return [ThinkingText(thinking)] if thinking.strip() else []


def _failure_notice(failure: f.Failure | None) -> Notice:
    return Notice("Stopped.") if failure is None else Notice(f"It failed: {failure.detail}", bad=True)


def _user_message(parts: tuple[AnyPart, ...]) -> UserMessageItem:
    return UserMessageItem(_join_text(parts), tuple(part.name for part in parts if isinstance(part, File)))


def _join_text(parts: tuple[AnyPart, ...], between: str = "\n") -> str:
    return between.join(part.text for part in parts if isinstance(part, Text))
