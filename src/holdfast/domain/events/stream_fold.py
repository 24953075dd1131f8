"""Fold deltas into the parts of a message, their digest and their pace.

A digest depends on the text and its order, never on how it was split into deltas: the writer may join two
neighbours of one kind. It leaves out what never streams (signatures), so that deltas can be checked against
their body before they are pruned.
"""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import AnyPart, Change, File, Reasoning, Text, ToolCall
from holdfast.domain.ids import CallId, MessageId
from holdfast.domain.limits import PACE_SAMPLES_MAX, PACE_SAMPLES_PER_S_MAX
from holdfast.domain.state.rows import ToolRow

MessageDelta = f.TextAppended | f.ReasoningAppended | f.ToolArgumentsAppended
_DIGEST_BYTES = 16


class _OpenPart(msgspec.Struct):
    """A part that is still growing; its pieces are joined on demand."""

    kind: Literal["text", "reasoning", "tool_call"]
    pieces: list[str]
    call_id: CallId = CallId("")
    name: str = ""
    signature: str = ""
    provider: str = ""
    closed: bool = False

    def part(self) -> AnyPart:
        text = "".join(self.pieces)
        # Joined in place, so that later reads do not join the same pieces again.
        self.pieces[:] = [text]
        if self.kind == "text":
            return Text(text)
        if self.kind == "reasoning":
            return Reasoning(text, self.signature, self.provider)
        return ToolCall(self.call_id, self.name, text)


class PaceSampler:
    """Record the pace of a body as at most PACE_SAMPLES_MAX steps of milliseconds and characters.

    Past that number the grid doubles, so that a long answer keeps its whole length.
    """

    def __init__(self, started_at: Instant) -> None:
        self._started_at = started_at
        self._every_ms = -(-1000 // PACE_SAMPLES_PER_S_MAX)
        self._samples: list[tuple[int, int]] = []

    def add(self, at: Instant, chars: int) -> None:
        if chars == 0:
            return
        self._add_sample(max(0, at - self._started_at), chars)
        while len(self._samples) > PACE_SAMPLES_MAX:
            samples, self._samples = self._samples, []
            self._every_ms *= 2
            for ms, count in samples:
                self._add_sample(ms, count)

    def _add_sample(self, ms: int, chars: int) -> None:
        last = self._samples[-1] if self._samples else None
        # If the clock was set back, the last sample takes the characters: steps are never negative.
        if last is not None and ms - last[0] < self._every_ms:
            self._samples[-1] = (last[0], last[1] + chars)
        else:
            self._samples.append((ms, chars))

    def steps(self) -> f.PaceSamples:
        """Return a flat tuple: ms since the previous sample, characters, ms, characters …"""
        flat: list[int] = []
        before = 0
        for ms, chars in self._samples:
            flat += (ms - before, chars)
            before = ms
        return tuple(flat)


class StreamFold:
    """Fold the deltas of one message, at constant cost for each."""

    def __init__(self, started_at: Instant = 0) -> None:
        self._parts: list[_OpenPart] = []
        self._calls: dict[CallId, _OpenPart] = {}
        self._pace = PaceSampler(started_at)
        self.started_at = started_at

    def add(self, delta: MessageDelta, at: Instant = 0) -> None:
        """Add the next delta, which must belong to this message."""
        self._pace.add(at, len(delta.text))
        match delta:
            case f.TextAppended():
                self._write("text", delta.text)
            case f.ReasoningAppended():
                self._write("reasoning", delta.text)
            case f.ToolArgumentsAppended():
                call = self._calls.get(delta.call_id)
                if call is None:
                    call = _OpenPart("tool_call", [], delta.call_id, delta.name)
                    self._calls[delta.call_id] = call
                    self._parts.append(call)
                call.pieces.append(delta.text)

    def _write(self, kind: Literal["text", "reasoning"], text: str) -> None:
        if not text:
            return
        last = self._parts[-1] if self._parts else None
        if last is not None and last.kind == kind and not last.closed:
            last.pieces.append(text)
        else:
            self._parts.append(_OpenPart(kind, [text]))

    def sign(self, signature: str, provider: str) -> None:
        """Close the open reasoning with its provider's signature; if there is none, record a hidden one."""
        last = self._parts[-1] if self._parts else None
        if last is None or last.kind != "reasoning" or last.closed:
            last = _OpenPart("reasoning", [])
            self._parts.append(last)
        last.signature, last.provider, last.closed = signature, provider, True

    def parts(self) -> tuple[AnyPart, ...]:
        return tuple(part.part() for part in self._parts)

    def digest(self) -> str:
        return parts_digest(self.parts())

    def pace(self) -> f.PaceSamples:
        return self._pace.steps()

    @property
    def is_empty(self) -> bool:
        return not self._parts


class OutputFold:
    """Fold the output of one tool call, both streams in the order they came."""

    def __init__(self, started_at: Instant = 0) -> None:
        self._pieces: list[str] = []
        self._pace = PaceSampler(started_at)

    @classmethod
    def from_events(cls, events: Sequence[Event]) -> "OutputFold":
        """Return the output in the events of a call's row: the one that opened it, then its deltas."""
        fold = cls(events[0].at if events else 0)
        for event in events:
            fact = event.fact
            if isinstance(fact, f.ToolOutputAppended):
                fold.add(fact, event.at)
        return fold

    def add(self, delta: f.ToolOutputAppended, at: Instant = 0) -> None:
        if delta.text:
            self._pieces.append(delta.text)
            self._pace.add(at, len(delta.text))

    def text(self) -> str:
        text = "".join(self._pieces)
        self._pieces[:] = [text] if text else []
        return text

    def parts(self) -> tuple[AnyPart, ...]:
        text = self.text()
        return (Text(text),) if text else ()

    def digest(self) -> str:
        return parts_digest(self.parts())

    def pace(self) -> f.PaceSamples:
        return self._pace.steps()

    @property
    def is_empty(self) -> bool:
        return not self._pieces


def message_digest(deltas: Iterable[f.Delta], message_id: str) -> str:
    """Return the digest of one message in `deltas`; those of others are skipped."""
    fold = StreamFold()
    for delta in deltas:
        if not isinstance(delta, f.ToolOutputAppended) and delta.message_id == message_id:
            fold.add(delta)
    return fold.digest()


def output_digest(deltas: Iterable[f.Delta], call_id: str) -> str:
    """Return the digest of one call's output in `deltas`; those of others are skipped."""
    fold = OutputFold()
    for delta in deltas:
        if isinstance(delta, f.ToolOutputAppended) and delta.call_id == call_id:
            fold.add(delta)
    return fold.digest()


def parts_digest(parts: Iterable[AnyPart]) -> str:
    """Return the digest of a body, without signatures and with neighbours of one kind joined."""
    plain: list[list[str]] = []
    for part in parts:
        match part:
            case Text(text=text) | Reasoning(text=text):
                kind = "text" if isinstance(part, Text) else "reasoning"
                if text and plain and plain[-1][0] == kind:
                    plain[-1].append(text)
                elif text:
                    plain.append([kind, text])
            case ToolCall():
                plain.append(["tool_call", part.call_id, part.name, part.arguments])
            case File():
                plain.append(["file", part.blob, part.name, part.media_type])
            case Change():
                plain.append(["change", part.path, part.before or "", part.after or "", part.diff])
    joined = [[p[0], "".join(p[1:])] if p[0] in ("text", "reasoning") else p for p in plain]
    return hashlib.blake2b(msgspec.json.encode(joined), digest_size=_DIGEST_BYTES).hexdigest()


def settle_message(
    started: f.ModelStepStarted, fold: StreamFold, status: f.Settlement = "settled"
) -> f.MessageSettled:
    """Return the fact that settles a streamed message with its whole body."""
    return f.MessageSettled(
        turn=started.turn, place=started.place, message_id=started.message_id, role="assistant",
        parts=fold.parts(), digest=fold.digest(), run_id=started.run_id, status=status,
        continues=started.continues, pace=fold.pace(), model=started.model,
        began_at=fold.started_at,
    )  # fmt: skip


def settle_tool(
    tool: ToolRow,
    message_id: MessageId,
    outcome: f.ToolOutcome,
    output: OutputFold,
    parts: tuple[AnyPart, ...] | None = None,
    status: f.Settlement = "settled",
) -> f.ToolSettled:
    """Return the fact that settles a call. `parts` is its result if that differs from its streamed output.

    Output that was moved to a blob keeps the digest of the whole stream.
    """
    parts = output.parts() if parts is None else parts
    return f.ToolSettled(
        turn=tool.turn, place=tool.place, message_id=message_id, call_id=tool.id, name=tool.name,
        outcome=outcome, parts=parts,
        digest=parts_digest(parts) if output.is_empty else output.digest(),
        run_id=tool.run_id, status=status, pace=output.pace(),
    )  # fmt: skip
