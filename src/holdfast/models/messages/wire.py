"""Anthropic Messages: `request` encodes requests, this module decodes answers. No I/O."""

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from holdfast.domain.context.request import ModelProfile, Request
from holdfast.domain.usage import Usage
from holdfast.models.messages import request as encoding
from holdfast.models.messages.request import REDACTED
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec
from holdfast.models.wire import EFFORT, ErrorInStream

DECLINED = "the model declined to answer"
_STOP_REASONS: Mapping[str, str] = MappingProxyType({
    "": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
})  # fmt: skip
_EVENT_TYPES = frozenset({
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
    "message_stop", "message", "error",
})  # fmt: skip
_BLOCK_TYPES = frozenset({
    "text", "text_delta", "thinking", "thinking_delta", "signature_delta", "redacted_thinking", "tool_use",
    "input_json_delta",
})  # fmt: skip
_CONTENT = msgspec.json.Decoder(list[msgspec.Raw])


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class _StopDetails(msgspec.Struct):
    explanation: str | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _Message(msgspec.Struct):
    usage: msgspec.Raw = msgspec.Raw()


class _Event(msgspec.Struct):
    """Any event; or an answer that came whole, with its content and its end at the top."""

    type: str = ""
    index: int | None = None
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | str | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    content: msgspec.Raw = msgspec.Raw()
    stop_reason: str | None = None
    stop_details: _StopDetails | None = None


class _WireUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class _Call(msgspec.Struct):
    """A call that is being received. `initial_arguments` came with its beginning."""

    index: int
    id: str = ""
    name: str = ""
    initial_arguments: str = ""
    pieces: list[str] = msgspec.field(default_factory=list)
    is_closed: bool = False


_EVENT = msgspec.json.Decoder(_Event)
_WIRE_USAGE = msgspec.json.Decoder(_WireUsage)
_BLOCK = msgspec.json.Decoder(_Block)


class MessagesDecoder:
    """Decode one answer: the data of events in, deltas out."""

    def __init__(self) -> None:
        self.has_stream_ended = False
        self._reason: str | None = None
        self._counts = _WireUsage()
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call | None] = {}
        self._last_index = -1
        self._signature = ""
        self._has_answered = False

    @property
    def is_answer_complete(self) -> bool:
        """Return whether the answer is complete; its usage may still follow."""
        return self.has_stream_ended or self._reason is not None

    def feed(self, data: bytes) -> list[ModelDelta]:
        """Return the deltas in one event.

        Raises ErrorInStream, or ValueError for data that is no part of an answer.
        """
        if not data:
            return []
        event = _decode_event(data)
        if self._signature and not _is_signature(event):
            return [*self._flush_signature(), *self._deltas(event, data)]
        return self._deltas(event, data)

    def _deltas(self, event: _Event, data: bytes) -> list[ModelDelta]:
        match event.type:
            case "content_block_delta":
                return self._extend_block(event)
            case "content_block_start":
                return self._start_block(event)
            case "content_block_stop":
                return self._close_call(self._call_at(event.index))
            case "message_start" if isinstance(event.message, _Message):
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                delta = event.delta or _Delta()
                self._stop(delta.stop_reason, delta.stop_details)
            case "message_stop":
                self.has_stream_ended = True
            case "message":
                return self._decode_whole(event)
            case _ if event.type == "error" or _is_present(event.error):
                raise ErrorInStream(data)
        return []

    def end(self) -> list[ModelDelta]:
        """Return the last deltas: the ends of calls that are still open, and the one StepEnd."""
        last: list[ModelDelta] = []
        for call in self._calls:
            last += self._close_call(call)
            if not call.name and call.pieces:
                last.append(CallDelta(call.index, "", "".join(call.pieces)))
        reason = _STOP_REASONS.get(self._reason or "", self._reason or "")
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        return [*last, StepEnd(reason, self._usage())]

    # Blocks.

    def _start_block(self, event: _Event) -> list[ModelDelta]:
        self._last_index = index = self._last_index + 1 if event.index is None else event.index
        block = event.content_block or _Block()
        if block.type != "tool_use":
            self._by_index.setdefault(index, None)
        match block.type:
            case "text" if block.text:
                return self._add_text(block.text)
            case "thinking":
                self._signature = block.signature or ""
                return [ReasoningDelta(block.thinking)] if block.thinking else []
            case "redacted_thinking" if block.data:
                return [ReasoningDelta("", REDACTED + block.data)]
            case "tool_use":
                return self._start_call(index, block)
        return []

    def _extend_block(self, event: _Event) -> list[ModelDelta]:
        delta = event.delta or _Delta()
        match delta.type:
            case "text_delta" if delta.text:
                return self._add_text(delta.text)
            case "thinking_delta" if delta.thinking:
                return [ReasoningDelta(delta.thinking)]
            case "signature_delta" if delta.signature:
                # Held until another event, because a signature closes the thinking before it.
                self._signature = delta.signature
            case "input_json_delta" if delta.partial_json:
                return self._extend_call(event.index, delta.partial_json)
        return []

    def _add_text(self, text: str) -> list[ModelDelta]:
        self._has_answered = True
        return [TextDelta(text)]

    def _flush_signature(self) -> list[ModelDelta]:
        if not self._signature:
            return []
        signature, self._signature = self._signature, ""
        return [ReasoningDelta("", signature)]

    # Calls.

    def _start_call(self, index: int, block: _Block) -> list[ModelDelta]:
        self._has_answered = True
        found = self._by_index.get(index)
        closed: list[ModelDelta] = []
        if found is None or (found.name and (block.id or "") != found.id):
            closed = self._close_call(found)
            found = self._new_call(index)
        elif found.name:
            return []  # A repetition of the same beginning.
        found.id, found.name, found.initial_arguments = (
            block.id or "",
            block.name or "unknown",
            _initial_arguments(block.input),
        )
        return [*closed, CallDelta(found.index, found.name, "".join(found.pieces))]

    def _extend_call(self, index: int | None, piece: str) -> list[ModelDelta]:
        key = self._last_index if index is None else index
        if key in self._by_index and self._by_index[key] is None:
            return []  # Input of the server's own tools.
        call = self._by_index.get(key) or self._new_call(key)
        call.pieces.append(piece)
        return [CallDelta(call.index, call.name, piece)] if call.name else []

    def _close_call(self, call: _Call | None) -> list[ModelDelta]:
        if call is None or call.is_closed or not call.name:
            return []
        call.is_closed = True
        if "".join(call.pieces).strip():
            return []
        # A call of a tool that takes no arguments may come without any.
        return [CallDelta(call.index, call.name, call.initial_arguments or "{}")]

    def _new_call(self, index: int) -> _Call:
        call = _Call(len(self._calls))
        self._calls.append(call)
        self._by_index[index] = call
        return call

    def _call_at(self, index: int | None) -> _Call | None:
        return self._by_index.get(self._last_index if index is None else index)

    # The end.

    def _decode_whole(self, answer: _Event) -> list[ModelDelta]:
        """Return the deltas of an answer that did not stream. Unknown blocks are skipped."""
        deltas: list[ModelDelta] = []
        for raw in _CONTENT.decode(answer.content) if _is_present(answer.content) else ():
            try:
                block = _BLOCK.decode(raw)
            except msgspec.ValidationError:
                if _type_of(msgspec.json.decode(raw)) in _BLOCK_TYPES:
                    raise
                continue
            deltas += self._start_block(_Event(content_block=block))
            deltas += self._flush_signature()
            deltas += self._close_call(self._call_at(None))
        self._count(answer.usage)
        self._stop(answer.stop_reason, answer.stop_details)
        self.has_stream_ended = True
        return deltas

    def _stop(self, reason: str | None, details: _StopDetails | None) -> None:
        if not reason:
            return
        if reason == "refusal" and not self._has_answered:
            # There is no text to keep, and asking again would end the same way.
            why = f"{DECLINED}: {details.explanation}" if details and details.explanation else DECLINED
            raise ErrorInStream(msgspec.json.encode({"error": {"type": reason, "message": why}}))
        self._reason = reason

    def _count(self, usage: msgspec.Raw) -> None:
        """Update the counts; each new value replaces the one before."""
        if not _is_present(usage):
            return
        try:
            counts = _WIRE_USAGE.decode(usage)
        except msgspec.DecodeError:
            return  # Counts only inform: a malformed one must not cost the answer.
        for name in counts.__struct_fields__:
            if (count := getattr(counts, name)) is not None:
                setattr(self._counts, name, max(count, 0))

    def _usage(self) -> Usage:
        """Return the usage. Its input includes what was read from the cache and written to it."""
        counts = self._counts
        cached, written = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens or 0
        input_tokens = (counts.input_tokens or 0) + cached + written
        return Usage(input_tokens, counts.output_tokens or 0, cached, written_tokens=written)


def _decode_event(data: bytes) -> _Event:
    """Return the event; an empty one if its kind is unknown and its shape does not fit."""
    try:
        return _EVENT.decode(data)
    except msgspec.ValidationError:
        found = msgspec.json.decode(data)
        kind = _type_of(found)
        if kind is None:
            raise
        inside = [_type_of(found[name]) for name in ("delta", "content_block") if name in found]
        if kind in _EVENT_TYPES and all(block_type in _BLOCK_TYPES for block_type in inside):
            raise
        return _Event()


def _type_of(found: Any) -> str | None:
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else None


def _is_signature(event: _Event) -> bool:
    return event.delta is not None and event.delta.type == "signature_delta"


def _initial_arguments(raw: msgspec.Raw) -> str:
    """Return the arguments that came with a call's beginning; they are usually empty and follow in pieces."""
    text = bytes(raw).strip()
    return text.decode() if text.startswith(b"{") and text[1:-1].strip() else ""


def _is_present(raw: msgspec.Raw) -> bool:
    return bool(raw) and bytes(raw) != b"null"


class MessagesWire:
    """Anthropic Messages. The base URL ends in `/v1`."""

    path = "messages"
    optional_fields = (
        ("thinking", "thinking.type"),
        ("thinking", "thinking is not supported"),
        ("thinking", "support thinking"),
        ("thinking", "support extended thinking"),
        ("thinking", "budget_tokens"),
        ("thinking", "thinking: "),
        ("thinking.display", "display"),
        ("cache_control", "cache_control"),
        (EFFORT, "effort parameter"),
        (EFFORT, "output_config"),
        ("tools", "does not support tools"),
        (encoding.LONG_MAX_TOKENS, "maximum allowed number of output tokens"),
        # The server rejects thinking of this conversation, which can continue without it.
        (encoding.SIGNED_THINKING, "thinking` block"),
        (encoding.SIGNED_THINKING, "thinking block"),
        (encoding.SIGNED_THINKING, "`redacted_thinking`"),
        (encoding.SIGNED_THINKING, "signature"),
    )

    def encode(
        self,
        model: str,
        profile: ModelProfile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        return encoding.encode(model, profile, request, tools, without)

    def decoder(self) -> MessagesDecoder:
        return MessagesDecoder()
