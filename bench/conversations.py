"""Generate conversations as the engine writes them: the same facts, in the same order, with digests."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from bench.texts import Texts, tokens
from holdfast.domain.clock import Clock
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import (
    OutputFold,
    StreamFold,
    parts_digest,
    settle_message,
    settle_tool,
)
from holdfast.domain.ids import IdGenerator, MessageId, RunId, SessionId, TurnId
from holdfast.domain.state.rows import ToolRow
from holdfast.domain.usage import Usage

MODEL = "openai:gpt-5-mini"


@dataclass(frozen=True)
class Shape:
    """Lengths of texts and of streamed pieces, in characters."""

    user: int
    answer: int
    tool_output: int
    token: int


ENGLISH = Shape(user=200, answer=1_200, tool_output=800, token=5)
CHINESE = Shape(user=80, answer=480, tool_output=300, token=2)


class ConversationGenerator:
    """Generate one session's turns, a tick at a time, and count the bytes of their text."""

    def __init__(
        self, texts: Texts, shape: Shape, ids: IdGenerator, clock: Clock, rng: random.Random
    ) -> None:
        self._texts = texts
        self._shape = shape
        self._ids = ids
        self._clock = clock
        self._rng = rng
        self.session_id = ids.session()
        self.text_bytes = 0

    def created(self) -> list[f.AnyFact]:
        return [f.SessionCreated(title=self._take_text(40), model=MODEL)]

    def turn(self, number: int) -> Iterator[list[f.AnyFact]]:
        """Yield the facts of a turn, one list per commit. Every second turn calls a tool."""
        ids = self._ids
        run_id = ids.run()
        words = (Text(self._take_text(self._shape.user)),)
        yield [f.TurnAccepted(ids.turn(), number, ids.message(), words, run_id, key=ids.turn())]
        yield [f.RunStarted(run_id), f.ContextPrepared(run_id, parts_digest(words))]
        place = 1
        if number % 2 == 0:
            yield from self._call(run_id, number)
            place = 3
        step = f.ModelStepStarted(run_id, number, place, ids.message(), MODEL)
        yield [step]
        fold = StreamFold(self._clock.now_ms())
        yield from self._stream_text(step, fold, self._shape.answer)
        yield [settle_message(step, fold), _usage(step), f.RunCompleted(run_id)]

    def _call(self, run_id: RunId, number: int) -> Iterator[list[f.AnyFact]]:
        step = f.ModelStepStarted(run_id, number, 1, self._ids.message(), MODEL)
        yield [step]
        fold = StreamFold(self._clock.now_ms())
        yield from self._stream_text(step, fold, 60)
        call_id = self._ids.call()
        arguments = f'{{"path":"{self._take_text(20)}","lines":{self._rng.randrange(900)}}}'
        for piece in tokens(arguments, self._shape.token, self._rng):
            delta = f.ToolArgumentsAppended(run_id, step.message_id, call_id, "read_file", piece)
            fold.add(delta, self._clock.now_ms())
            yield [delta]
        tool = ToolRow(call_id, run_id, number, 2, "read_file", "pure")
        intended = f.ToolIntended(
            run_id, number, 2, step.message_id, call_id, tool.name, arguments, tool.effect
        )
        yield [settle_message(step, fold), _usage(step), intended]
        yield [f.ToolStarted(run_id, call_id)]
        output = OutputFold(self._clock.now_ms())
        for piece in tokens(self._take_text(self._shape.tool_output), 200, self._rng):
            part = f.ToolOutputAppended(run_id, call_id, piece)
            output.add(part, self._clock.now_ms())
            yield [part]
        yield [settle_tool(tool, step.message_id, "done", output)]

    def _stream_text(
        self, step: f.ModelStepStarted, fold: StreamFold, chars: int
    ) -> Iterator[list[f.AnyFact]]:
        for piece in tokens(self._take_text(chars), self._shape.token, self._rng):
            delta = f.TextAppended(step.run_id, step.message_id, piece)
            fold.add(delta, self._clock.now_ms())
            yield [delta]

    def _take_text(self, chars: int) -> str:
        """Return text of about that length: lengths vary as people's do."""
        text = self._texts.take_text(max(4, round(chars * self._rng.uniform(0.4, 1.6))))
        self.text_bytes += len(text.encode())
        return text


def _usage(step: f.ModelStepStarted) -> f.ModelStepSettled:
    return f.ModelStepSettled(step.run_id, step.message_id, "stop", Usage(2_412, 301, 2_048, 1_377))


class Names:
    """Ids from a counter: fast enough for a hundred thousand sessions."""

    def __init__(self) -> None:
        self._count = 0

    def next(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}_{self._count:016d}"


def whole_turn(names: Names, number: int, text: str, answer: str) -> list[f.AnyFact]:
    """Return a finished turn as one change: five facts, two messages, one completed run."""
    run_id = RunId(names.next("r"))
    parts = (Text(answer),)
    message_id = MessageId(names.next("m"))
    turn_id = TurnId(names.next("t"))
    return [
        f.TurnAccepted(turn_id, number, MessageId(names.next("m")), (Text(text),), run_id, key=turn_id),
        f.RunStarted(run_id),
        f.ModelStepStarted(run_id, number, 1, message_id, MODEL),
        f.MessageSettled(number, 1, message_id, "assistant", parts, parts_digest(parts), run_id),
        f.RunCompleted(run_id),
    ]


@dataclass(frozen=True)
class Stream:
    """The ids of a streaming message, for its deltas."""

    session_id: SessionId
    step: f.ModelStepStarted

    def delta(self, text: str) -> f.TextAppended:
        return f.TextAppended(self.step.run_id, self.step.message_id, text)


def open_stream_facts(ids: IdGenerator) -> tuple[Stream, list[f.AnyFact]]:
    """Return a new stream and the facts that create its session, its run and its message."""
    run_id = ids.run()
    step = f.ModelStepStarted(run_id, 1, 1, ids.message(), MODEL)
    accepted = f.TurnAccepted(ids.turn(), 1, ids.message(), (Text("Go on."),), run_id, key=ids.turn())
    return Stream(ids.session(), step), [
        f.SessionCreated(model=MODEL),
        accepted,
        f.RunStarted(run_id),
        f.ContextPrepared(run_id, parts_digest(accepted.parts)),
        step,
    ]
