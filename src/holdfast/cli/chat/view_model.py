"""What the terminal shows of a conversation: a fold of its events. Pure: it knows no screen and no clock.

What is whole is printed, once and for good; what is still changing is drawn anew below it.
"""

import msgspec
from msgspec.structs import replace

from holdfast.cli.chat.interruptions import Stop, Stops, continued
from holdfast.cli.chat.markdown_blocks import whole
from holdfast.cli.chat.wire import Happened, Listed, Message, Page, Question, Run, Session
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Unknown
from holdfast.domain.events.parts import AnyPart, File, Reasoning, Text, ToolCall
from holdfast.domain.shell.rules import ANY
from holdfast.domain.state.rows import OVER, MessageStatus, RunStatus, SessionStatus
from holdfast.domain.transcript.labels import LATE, NOTICES

GONE = "The server has gone. What you write is sent when it is back; looking for it…"
BACK = "The server is back."
ALONE = "No server came back, so this chat does its work itself, until you leave."
OUTPUT_CHARS_MAX = 2_000
"""As much of a running tool's output is held to show its end."""


class Said(msgspec.Struct, frozen=True):
    """A person's message."""

    text: str
    files: tuple[str, ...] = ()


class Block(msgspec.Struct, frozen=True):
    """A piece of an answer, in Markdown, that is whole."""

    text: str


class Thought(msgspec.Struct, frozen=True):
    text: str


class Tool(msgspec.Struct, frozen=True):
    """A call that is over."""

    name: str
    arguments: str
    outcome: f.ToolOutcome
    ms: int = 0
    output: str = ""


class Notice(msgspec.Struct, frozen=True):
    """A line beside the conversation. `bad`: something went wrong; `plain`: it is what somebody asked for."""

    text: str
    bad: bool = False
    at: int = 0
    plain: bool = False


Shown = Said | Block | Thought | Tool | Notice


class Contact(msgspec.Struct, frozen=True):
    """Whether there is a server to talk to: it has just gone, or one is there; `is_own`: inside this chat."""

    is_here: bool
    is_own: bool = False


class Writing(msgspec.Struct):
    """A message that is being written: all of its text, and how much of that was printed.

    `has_thought`: its thinking so far was printed.
    """

    run_id: str
    text: str = ""
    printed: int = 0
    thinking: str = ""
    has_thought: bool = False

    @property
    def rest(self) -> str:
        return self.text[self.printed :]


class Call(msgspec.Struct):
    """A call that is not over."""

    run_id: str
    name: str
    arguments: str
    started_at: int = 0
    output: str = ""
    is_asked: bool = False


class Scene:
    """One conversation. `begin` with a page of it, then `add` what happens; both return what to print."""

    def __init__(self, session: Session, model: str = "") -> None:
        self.session_id = session.id
        self.title = session.title
        self.opening = session.opening
        """What it is known by while it has no title."""
        self.model = model
        self.agent = session.agent
        self.turns = session.turns
        self.usage = session.usage
        self.cursor = 0
        self.questions: tuple[Question, ...] = ()
        self.writing: dict[str, Writing] = {}
        self.calls: dict[str, Call] = {}
        self.queued: dict[str, Said] = {}
        """Messages that wait for the answer before them, by their run: shown when it is their turn."""
        self._runs: dict[str, RunStatus] = {}
        self._asks: set[str] = set()
        self._stops = Stops()
        self._retries = False
        self._is_held = False
        """The last answer was stopped or failed: what is queued behind it waits for a person."""

    @property
    def status(self) -> SessionStatus:
        """How it stands, from its events alone."""
        open_runs = {status for run, status in self._runs.items() if status not in OVER}
        if "waiting" in open_runs or self._asks or self.unanswered:
            return "needs_you"
        if open_runs & {"running", "accepted", "queued"}:
            return "working"
        return "interrupted" if open_runs else "idle"

    @property
    def unanswered(self) -> list[str]:
        """The runs of the messages that are answered only when a person says so, the oldest first."""
        is_held = self._is_held and all(status == "queued" for status in self._runs.values())
        return list(self._runs) if is_held else []

    @property
    def asked(self) -> tuple[Question, ...]:
        """All that waits for a person: what the list says, and an answer that stays stopped until told."""
        if self.questions:
            return tuple(map(self._whole, self.questions))
        if waiting := self.unanswered:
            said = f"{messages(len(waiting))} not answered yet."
            return (Question(self.session_id, waiting[0], "question", said, unanswered=len(waiting)),)
        stopped = NOTICES["interrupted"]
        return tuple(Question(self.session_id, run_id, "question", stopped) for run_id in sorted(self._asks))

    def _whole(self, question: Question) -> Question:
        """The list has only the beginning of long arguments; the call has all of them."""
        call = self.calls.get(question.call_id or "")
        if not question.arguments_cut or call is None:
            return question
        return replace(question, arguments=call.arguments, arguments_cut=False)

    @property
    def stopped(self) -> list[str]:
        """What is to be said of answers that stopped with the server, while nothing has come after."""
        return self._stops.standing(set() if self.questions else self._asks)

    @property
    def run_id(self) -> str | None:
        """The run to be stopped: the first that is not over."""
        return next((run for run, status in self._runs.items() if status not in OVER), None)

    def begin(self, page: Page, messages_max: int) -> list[Shown]:
        """The last messages of a page; what is still being written goes on from there."""
        self.cursor = page.head
        for run in page.runs:
            self._run(run)
        self._is_held = True
        arguments = {
            part.call_id: part.arguments
            for message in page.messages
            for part in message.parts
            if isinstance(part, ToolCall)
        }
        ends = {
            run.id: _ended_badly(run.failure) for run in page.runs if run.status in ("failed", "cancelled")
        }
        last = {message.run_id: message.id for message in page.messages if message.live}
        shown: list[list[Shown]] = []
        for message in page.messages:
            found = self._old(message, arguments, page.messages) if message.live else []
            end = ends.get(message.run_id or "") if last.get(message.run_id) == message.id else None
            # That it was stopped goes without saying where the last that is said of it is how it stopped.
            if end is not None and (end.bad or message.role != "notice"):
                found.append(end)
            if found:
                shown.append(found)
        return [each for found in shown[-messages_max:] for each in found]

    def said_before(self, page: Page) -> list[str]:
        """What people wrote in it, the oldest first."""
        return [text for each in page.messages if each.role == "user" and (text := _text(each.parts))]

    def listed(self, told: Listed) -> None:
        """How the list tells of it now."""
        self.questions = told.questions
        if told.session is not None:
            self.title, self.turns, self.usage = told.session.title, told.session.turns, told.session.usage
            self.opening, self.agent = told.session.opening, told.session.agent

    def contacted(self, contact: Contact) -> list[Shown]:
        """What came before the server went is printed before that is said, whole or not."""
        if contact.is_here:
            return [Notice(ALONE if contact.is_own else BACK)]
        return [*self.so_far(), Notice(GONE)]

    def so_far(self) -> list[Shown]:
        """What is being written, as far as it has come and was not printed: something else is to follow."""
        shown: list[Shown] = []
        for message in self.writing.values():
            shown += _thought(message) + _print(message, len(message.rest))
        return shown

    def add(self, happened: Happened) -> list[Shown]:
        """Take in the next event; returns what is to be printed for it."""
        self.cursor = happened.seq
        fact = happened.fact
        before = self._continued(fact, happened.at)
        return [*before, *self._added(fact, happened.at)] if before else self._added(fact, happened.at)

    def _continued(self, fact: f.AnyFact | Unknown, at: int) -> list[Shown]:
        """What is said before the first that comes after a stop."""
        if not isinstance(fact, f.ModelStepStarted | f.ToolIntended | f.TurnSteered):
            return []
        return [Notice(said, at=at) for said in self._stops.went_on(fact.turn, fact.place)]

    def _added(self, fact: f.AnyFact | Unknown, at: int) -> list[Shown]:
        match fact:
            case Unknown():
                return []
            case f.TextAppended() | f.ReasoningAppended() | f.ModelStepStarted() | f.MessageSettled():
                return self._written(fact)
            case f.RunInterrupted() | f.RunCancelled() | f.RunFailed() | f.RunCompleted():
                return self._over(fact)
            case f.RunStarted() | f.RunWaiting() | f.RunResumed():
                return self._moved(fact)
            case f.TurnsUndone() | f.TurnsRestored():
                return self._removed(fact)
            case f.TurnAccepted() | f.TurnQueued() | f.TurnDequeued() | f.TurnSteered():
                return self._turn(fact)
            case _:
                return self._call(fact, at) or self._rest(fact)

    def _written(
        self, fact: f.TextAppended | f.ReasoningAppended | f.ModelStepStarted | f.MessageSettled
    ) -> list[Shown]:
        if isinstance(fact, f.MessageSettled):
            return self._settled(fact)
        message = self.writing.setdefault(fact.message_id, Writing(fact.run_id))
        match fact:
            case f.ModelStepStarted():
                self.model = fact.model or self.model
            case f.ReasoningAppended():
                message.thinking += fact.text
            case f.TextAppended():
                shown = _thought(message)
                message.text += fact.text
                return shown + _print(message, whole(message.rest))
        return []

    def _settled(self, fact: f.MessageSettled) -> list[Shown]:
        """The body stands for whatever was streamed; what of it is on the screen already stays there."""
        message = self.writing.pop(fact.message_id, None) or Writing(fact.run_id or "")
        if fact.role != "assistant":
            return []
        text = "".join(part.text for part in fact.parts if isinstance(part, Text))
        if not message.thinking and not message.text and not message.has_thought:
            message.thinking = "".join(part.text for part in fact.parts if isinstance(part, Reasoning))
        shown: list[Shown] = [Notice(LATE)] if fact.late else []
        shown += _thought(message)
        if not text.startswith(message.text[: message.printed]):
            message.printed = 0
        message.text = text
        return shown + _print(message, len(message.rest))

    def _over(self, fact: f.RunInterrupted | f.RunCancelled | f.RunFailed | f.RunCompleted) -> list[Shown]:
        shown: list[Shown] = self._due(fact.run_id)
        for message_id in [key for key, each in self.writing.items() if each.run_id == fact.run_id]:
            message = self.writing.pop(message_id)
            shown += _thought(message) + _print(message, len(message.rest))
        self._asks.discard(fact.run_id)
        self._is_held = not isinstance(fact, f.RunCompleted)
        match fact:
            case f.RunInterrupted():
                self._runs[fact.run_id] = "interrupted"
                if fact.asks:
                    self._asks.add(fact.run_id)
                self._stops.begin(Stop(fact.run_id, fact.turn, fact.place))
                return shown
            case f.RunFailed():
                ending = [_ended_badly(fact.failure)]
            case f.RunCancelled():
                ending = [_ended_badly(None)]
            case _:
                ending = []
        shown += [*(Notice(said) for said in self._stops.ended(fact.run_id)), *ending]
        self._runs.pop(fact.run_id, None)
        self.calls = {key: call for key, call in self.calls.items() if call.run_id != fact.run_id}
        return shown

    def _moved(self, fact: f.RunStarted | f.RunWaiting | f.RunResumed) -> list[Shown]:
        self._runs[fact.run_id] = "waiting" if isinstance(fact, f.RunWaiting) else "running"
        self._asks.discard(fact.run_id)
        self._is_held = False
        return self._due(fact.run_id)

    def _due(self, run_id: str) -> list[Shown]:
        """The message that has waited for this run, if one has."""
        said = self.queued.pop(run_id, None)
        return [] if said is None else [said]

    def _turn(self, fact: f.TurnAccepted | f.TurnQueued | f.TurnDequeued | f.TurnSteered) -> list[Shown]:
        match fact:
            case f.TurnAccepted():
                return self._accepted(fact)
            case f.TurnQueued():
                self._runs[fact.run_id] = "queued"
            case f.TurnDequeued():
                self._runs[fact.run_id] = "accepted"
                self._is_held = False
                return self._due(fact.run_id)
            case f.TurnSteered():
                self.queued = {run: said for run, said in self.queued.items() if said != _said(fact.parts)}
                return [_said(fact.parts)]
        return []

    def _removed(self, fact: f.TurnsUndone | f.TurnsRestored) -> list[Shown]:
        if isinstance(fact, f.TurnsRestored):
            return [Notice("Restored." if fact.reason == "undo" else "Switched to another version.")]
        self._retries = fact.reason == "retry"
        told = {
            "undo": "Removed, with what came after it. /restore brings it back.",
            "retry": "Answering again.",
        }
        return [Notice(told.get(fact.reason, "Edited:"))]

    def _accepted(self, fact: f.TurnAccepted) -> list[Shown]:
        # A retry says the same again; nobody needs to read it twice.
        said = [] if fact.replaces and self._retries else [_said(fact.parts)]
        is_busy = any(status in ("running", "accepted", "interrupted") for status in self._runs.values())
        if fact.run_id is not None:
            self._runs.setdefault(fact.run_id, "accepted")
            if is_busy and said:
                self.queued[fact.run_id] = said[0]
                return []
        return [*said]

    def _call(self, fact: object, at: int) -> list[Shown]:
        match fact:
            case f.ToolIntended():
                self.calls[fact.call_id] = Call(fact.run_id, fact.name, fact.arguments)
            case f.ToolStarted() if fact.call_id in self.calls:
                self.calls[fact.call_id].started_at = at
                self.calls[fact.call_id].is_asked = False
            case f.ToolOutputAppended() if fact.call_id in self.calls:
                call = self.calls[fact.call_id]
                call.output = (call.output + fact.text)[-OUTPUT_CHARS_MAX:]
            case f.ApprovalRequested() | f.ToolInDoubt() | f.QuestionAsked() if fact.call_id in self.calls:
                self.calls[fact.call_id].is_asked = True
            case f.ApprovalResolved() if fact.call_id in self.calls:
                return self._resolved(fact)
            case f.QuestionAnswered() | f.QuestionClosed():
                self.questions = tuple(each for each in self.questions if each.call_id != fact.call_id)
            case f.ToolSettled():
                known = self.calls.pop(fact.call_id, None)
                arguments = fact.arguments or (known.arguments if known else "")
                return [Tool(fact.name, arguments, fact.outcome, fact.ms, _text(fact.parts))]
        return []

    def _resolved(self, fact: f.ApprovalResolved) -> list[Shown]:
        self.calls[fact.call_id].is_asked = False
        self.questions = tuple(each for each in self.questions if each.call_id != fact.call_id)
        if fact.by == "policy":
            return []
        if fact.decision == "deny":
            return [Notice("Not allowed." + (f" {fact.reason}" if fact.reason else ""))]
        if fact.scope == "once":
            return [Notice("Allowed.")]
        what = fact.rule if fact.rule != ANY else f"every use of {self.calls[fact.call_id].name}"
        reach = "Always allowed" if fact.scope == "always" else "Allowed in this conversation"
        return [Notice(f"{reach}: {what}. `holdfast rules list` shows all that is allowed.")]

    def _rest(self, fact: object) -> list[Shown]:
        match fact:
            case f.SessionRenamed():
                self.title = fact.title
            case f.SessionDeleted():
                return [Notice("This conversation was deleted.", bad=True)]
            case f.SessionCleared():
                return [Notice("What was said before this is no longer shown to the model.")]
            case f.RecoveryPending():
                self._stops.change(fact.turn, fact.place, "pending")
            case f.RecoveryFinished():
                status: MessageStatus = "recovered" if fact.recovered else "final"
                if not self._stops.change(fact.turn, fact.place, status):
                    return [Notice(NOTICES[status])]
            case f.ModelStepRetried():
                return [Notice(f"The model did not answer ({fact.failure.detail}); trying again.")]
        return []

    def _run(self, run: Run) -> None:
        if run.status not in OVER:
            self._runs[run.id] = run.status
        if run.status == "interrupted":
            self._asks.add(run.id)

    def _old(self, message: Message, arguments: dict[str, str], messages: tuple[Message, ...]) -> list[Shown]:
        if message.role == "user":
            return [_said(message.parts)]
        if message.role == "tool":
            name, given = message.name or "", message.arguments or arguments.get(message.id, "")
            if message.outcome is None:
                self.calls[message.id] = Call(message.run_id or "", name, given)
                return []
            return [Tool(name, given, message.outcome, message.ms or 0, _text(message.parts))]
        if message.role == "notice":
            return self._old_stop(message, messages)
        writing = Writing(message.run_id or "", _text(message.parts, ""))
        if message.status == "streaming":
            self.writing[message.id] = writing
            return _print(writing, whole(writing.rest))
        return _print(writing, len(writing.rest))

    def _old_stop(self, notice: Message, messages: tuple[Message, ...]) -> list[Shown]:
        of_its_turn = (each for each in messages if each.turn == notice.turn and each.role != "notice")
        after = next((each for each in of_its_turn if each.place > notice.place), None)
        if after is not None:
            return [Notice(continued(notice.status), at=after.at)]
        if notice.run_id in self._runs:
            self._stops.begin(Stop(notice.run_id, notice.turn, notice.place, notice.status))
            return []
        return [Notice(NOTICES[notice.status])]


def messages(count: int) -> str:
    """Return how many messages there are, and the verb."""
    return "One message is" if count == 1 else f"{count:,} messages are"


def _print(message: Writing, chars: int) -> list[Shown]:
    """So much more of a message is printed."""
    text = message.rest[:chars]
    message.printed += chars
    return [Block(text)] if text.strip() else []


def _thought(message: Writing) -> list[Shown]:
    """The thinking is over: a line stands for it."""
    thinking, message.thinking = message.thinking, ""
    message.has_thought = message.has_thought or bool(thinking.strip())
    return [Thought(thinking)] if thinking.strip() else []


def _ended_badly(failure: f.Failure | None) -> Notice:
    """What is said where an answer failed, or was stopped."""
    return Notice("Stopped.") if failure is None else Notice(f"It failed: {failure.detail}", bad=True)


def _said(parts: tuple[AnyPart, ...]) -> Said:
    return Said(_text(parts), tuple(part.name for part in parts if isinstance(part, File)))


def _text(parts: tuple[AnyPart, ...], between: str = "\n") -> str:
    return between.join(part.text for part in parts if isinstance(part, Text))
