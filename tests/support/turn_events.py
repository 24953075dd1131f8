"""Facts of a turn, one call at a time, for tests of stores."""

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from holdfast.domain.clock import SystemClock
from holdfast.domain.decisions.turns import accept_turn
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, Text
from holdfast.domain.events.stream_fold import OutputFold, StreamFold, parts_digest, settle_message
from holdfast.domain.ids import CallId, IdGenerator, MessageId, SessionId
from holdfast.domain.state.session_state import Decide, SessionStateView
from holdfast.domain.usage import Usage
from holdfast.store.ports import Append

IDS = IdGenerator(SystemClock())


def created(title: str = "", session_id: SessionId | None = None) -> Append:
    """Return the append that begins a session, with a new id by default."""
    return Append(session_id or IDS.session(), (f.SessionCreated(title),))


def accept(session_id: SessionId, text: str, key: str | None = None) -> Append:
    """Return the append of a user message, numbered inside the transaction."""

    def decide(view: SessionStateView) -> Sequence[f.AnyFact]:
        return accept_turn(view, session_id, IDS, (Text(text),), key)

    decision: Decide = decide
    return Append(session_id, decision)


class TurnEvents:
    """One turn: each call returns its next fact, with the places that a run would assign."""

    def __init__(self, turn: int = 1, text: str = "What is there?", key: str | None = None) -> None:
        self.turn = turn
        self.id, self.run_id = IDS.turn(), IDS.run()
        self._parts: tuple[AnyPart, ...] = (Text(text),)
        self._key = key
        self._place = 0
        self._step: f.ModelStepStarted | None = None
        self._message_fold = StreamFold()
        self._call: f.ToolIntended | None = None
        self._output = OutputFold()

    @property
    def message_id(self) -> MessageId:
        """The id of the message in progress, or of the last one."""
        assert self._step is not None
        return self._step.message_id

    @property
    def call_id(self) -> CallId:
        assert self._call is not None
        return self._call.call_id

    def accepted(self) -> f.TurnAccepted:
        return f.TurnAccepted(self.id, self.turn, IDS.message(), self._parts, self.run_id, self._key)

    def started(self) -> f.RunStarted:
        return f.RunStarted(self.run_id)

    def step_started(self) -> f.ModelStepStarted:
        self._place += 1
        self._message_fold = StreamFold()
        self._step = f.ModelStepStarted(self.run_id, self.turn, self._place, IDS.message(), "demo")
        return self._step

    def text(self, text: str) -> f.TextAppended:
        delta = f.TextAppended(self.run_id, self.message_id, text)
        self._message_fold.add(delta)
        return delta

    def reasoning(self, text: str) -> f.ReasoningAppended:
        delta = f.ReasoningAppended(self.run_id, self.message_id, text)
        self._message_fold.add(delta)
        return delta

    def tool_arguments(self, call_id: CallId, text: str, name: str = "shell") -> f.ToolArgumentsAppended:
        delta = f.ToolArgumentsAppended(self.run_id, self.message_id, call_id, name, text)
        self._message_fold.add(delta)
        return delta

    def message_settled(self, status: f.Settlement = "settled", late: bool = False) -> f.MessageSettled:
        assert self._step is not None
        return replace(settle_message(self._step, self._message_fold, status), late=late)

    def message_settled_as(self, text: str, digest: str | None = None) -> f.MessageSettled:
        """Return a settled body that may differ from the streamed one."""
        assert self._step is not None
        parts = (Text(text),)
        return f.MessageSettled(
            self.turn, self._step.place, self.message_id, "assistant", parts,
            parts_digest(parts) if digest is None else digest, self.run_id,
        )  # fmt: skip

    def step_settled(self, usage: Usage | None = None) -> f.ModelStepSettled:
        return f.ModelStepSettled(self.run_id, self.message_id, "stop", usage or Usage(10, 20))

    def tool_intended(self, effect: f.Effect = "unsafe", call_id: CallId | None = None) -> f.ToolIntended:
        self._place += 1
        self._output = OutputFold()
        self._call = f.ToolIntended(
            self.run_id, self.turn, self._place, self.message_id, call_id or IDS.call(), "shell",
            '{"command":"ls"}', effect,
        )  # fmt: skip
        return self._call

    def tool_started(self) -> f.ToolStarted:
        return f.ToolStarted(self.run_id, self.call_id)

    def tool_output(self, text: str, stream: Literal["stdout", "stderr"] = "stdout") -> f.ToolOutputAppended:
        delta = f.ToolOutputAppended(self.run_id, self.call_id, text, stream)
        self._output.add(delta)
        return delta

    def tool_settled(self, outcome: f.ToolOutcome = "done") -> f.ToolSettled:
        assert self._call is not None
        parts = self._output.parts()
        return f.ToolSettled(
            self.turn, self._call.place, self._call.message_id, self.call_id, "shell", outcome, parts,
            parts_digest(parts), self.run_id,
        )  # fmt: skip

    def completed(self) -> f.RunCompleted:
        return f.RunCompleted(self.run_id)

    def cancelled(self) -> f.RunCancelled:
        return f.RunCancelled(self.run_id)

    def opening(self) -> list[f.AnyFact]:
        """Return the facts up to the beginning of the first message."""
        return [self.accepted(), self.started(), self.step_started()]

    def rest(self, *pieces: str) -> list[f.AnyFact]:
        """Return the rest of the turn: the message in pieces, settled, and the run completed."""
        deltas = [self.text(piece) for piece in pieces]
        return [*deltas, self.message_settled(), self.step_settled(), self.completed()]


def turn_facts(
    turn: int, text: str = "What is there?", answer: Sequence[str] = ("Much.",)
) -> list[f.AnyFact]:
    """Return a whole turn with an answer in pieces."""
    turn_events = TurnEvents(turn, text)
    return [*turn_events.opening(), *turn_events.rest(*answer)]


def turn_with_tool(turn: int, text: str = "Run it.", output: str = "a.txt\n") -> list[f.AnyFact]:
    """Return a whole turn whose first message calls a tool that streams its output."""
    turn_events = TurnEvents(turn, text)
    call = IDS.call()
    facts: list[f.AnyFact] = [
        *turn_events.opening(),
        turn_events.text("Let me look."),
        turn_events.tool_arguments(call, '{"a":'),
    ]
    facts += [
        turn_events.tool_arguments(call, "1}"),
        turn_events.message_settled(),
        turn_events.tool_intended(call_id=call),
    ]
    facts += [
        turn_events.tool_started(),
        turn_events.tool_output(output),
        turn_events.tool_output("!", "stderr"),
        turn_events.tool_settled(),
    ]
    facts += [turn_events.step_started(), *turn_events.rest("There ", "it is.")]
    return facts
