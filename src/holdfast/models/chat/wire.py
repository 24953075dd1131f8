"""Chat Completions: encode requests, decode the chunks of an answer. No I/O.

The decoder follows OpenAI's reference, and accepts what other servers do differently: thinking in
`reasoning_content` or `reasoning`, or between tags in the text; calls without `index`, calls that come whole,
names that are repeated.
"""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from holdfast.domain.context.request import ModelProfile, Request
from holdfast.domain.decisions.tools import is_complete
from holdfast.domain.usage import COUNT_MAX, Usage
from holdfast.models.chat.request import LONG_CALL_IDS, MAX_TOKENS, USER_AFTER_TOOL, encode
from holdfast.models.chat.thinking import (
    CALLS_WITHOUT_THINKING,
    EXTRA,
    THINKING,
    UNSIGNED_CALLS,
    ReasoningDetails,
    ThinkingSignature,
    ThinkTagParser,
    parse_object,
)
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec
from holdfast.models.wire import EFFORT, ErrorInStream


class ChatWire:
    """OpenAI Chat Completions, as other servers speak it too."""

    path = "chat/completions"
    optional_fields = (
        ("stream_options", "stream_options"),
        ("tools", "does not support tools"),
        ("tools", "no endpoints found that support tool use"),
        (MAX_TOKENS, "'max_tokens' is not supported"),
        (MAX_TOKENS, "use 'max_completion_tokens'"),
        ("max_completion_tokens", "'max_completion_tokens' is not supported"),
        (EFFORT, "reasoning_effort"),
        (EFFORT, "reasoning effort"),
        (EFFORT, "does not support thinking"),
        (EFFORT, "thinking level"),
        (EFFORT, "thinking_level"),
        (THINKING, "'reasoning_content' is unsupported"),
        (THINKING, "'reasoning' is unsupported"),
        (THINKING, "'reasoning_details' is unsupported"),
        (THINKING, '"reasoning_content"'),
        (THINKING, '"reasoning_details"'),
        (EXTRA, "extra_content"),
        (LONG_CALL_IDS, "with a length of 9"),
        (USER_AFTER_TOOL, "'user' after role 'tool'"),
        # For the next two, the server demands an addition instead of refusing a field.
        (CALLS_WITHOUT_THINKING, "must be passed back"),
        (UNSIGNED_CALLS, "missing a thought_signature"),
        (UNSIGNED_CALLS, "missing a `thought_signature`"),
    )

    def encode(
        self,
        model: str,
        profile: ModelProfile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        return encode(model, request, tools, without, profile.answer_tokens_max)

    def decoder(self) -> "ChatDecoder":
        return ChatDecoder()


# Decoding.


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: msgspec.Raw = msgspec.Raw()


class _ContentPiece(msgspec.Struct):
    """A piece of content in list form, in which Mistral sends its models' thinking."""

    text: str | None = None
    thinking: list["_ContentPiece"] | None = None


class _Delta(msgspec.Struct):
    content: str | list[_ContentPiece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: msgspec.Raw = msgspec.Raw()
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    object: str | None = None


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _WireUsage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    cost: Any = None
    is_byok: bool | None = None

    @property
    def cost_micros(self) -> int | None:
        """Return the cost of the answer that OpenRouter reports in US dollars; no other server is trusted."""
        if self.is_byok is not False or not isinstance(self.cost, float | int):
            return None
        return round(min(max(self.cost, 0), COUNT_MAX) * 1_000_000)


class _Call(msgspec.Struct):
    """A call that is being received. `index` is its number in the answer. Without a name it is held back."""

    index: int
    id: str = ""
    name: str = ""
    pieces: list[str] = msgspec.field(default_factory=list)

    def arguments(self) -> str:
        return "".join(self.pieces)


_CHUNK = msgspec.json.Decoder(_Chunk)
_WIRE_USAGE = msgspec.json.Decoder(_WireUsage)
_STOP_REASONS = (
    ("function_call", "tool_calls"), ("max_tokens", "length"), ("model_length", "length"), ("", "stop"),
)  # fmt: skip
_FAILED_REASONS = frozenset({"error", "insufficient_system_resource", "abort"})
"""Stop reasons of an incomplete answer, by OpenRouter, Mistral, DeepSeek and vLLM."""


class ChatDecoder:
    """Decode one answer: the data of events in, deltas out."""

    def __init__(self) -> None:
        self.has_stream_ended = False
        self._reason: str | None = None
        self._usage = Usage()
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._thinking_field = ""
        self._thinking: list[str] = []
        self._details: ReasoningDetails | None = None
        self._tag_parser = ThinkTagParser()
        self._error = b""

    @property
    def is_answer_complete(self) -> bool:
        """Return whether the answer is complete; its usage may still follow."""
        return self.has_stream_ended or self._reason is not None

    def feed(self, data: bytes) -> list[ModelDelta]:
        """Return the deltas in one event. Raises ErrorInStream, or ValueError for data that is no chunk."""
        if self._error:
            raise ErrorInStream(self._error)
        if data == b"[DONE]":
            self.has_stream_ended = True
            return []
        if not data:
            return []
        chunk = _CHUNK.decode(data)
        if chunk.error and bytes(chunk.error) != b"null":
            raise ErrorInStream(data)
        if chunk.usage and bytes(chunk.usage) != b"null":
            self._count(chunk.usage)
        if not chunk.choices:
            if chunk.object == "error":
                raise ErrorInStream(data)
            return []
        choice = chunk.choices[0]
        self._error = _error_in(choice)
        if choice.finish_reason and not self._error:
            self._reason = choice.finish_reason
        delta = choice.delta or choice.message
        deltas = self._deltas(delta) if delta is not None else []
        if self._error and not deltas:
            raise ErrorInStream(self._error)
        return deltas  # The next call raises an error that came with text, so that the text is not lost.

    def end(self) -> list[ModelDelta]:
        """Return the last deltas: calls whose arguments were left out, and the one StepEnd."""
        last: list[ModelDelta] = [*self._tag_parser.flush()]
        for call in self._calls:
            arguments = call.arguments()
            if call.name and not arguments.strip():
                # Some servers send no arguments at all for a tool that takes none.
                last.append(CallDelta(call.index, call.name, "{}"))
            elif arguments and not call.name:
                last.append(CallDelta(call.index, "", arguments))
        signature = (
            self._details.to_signature("".join(self._thinking), [call.id for call in self._calls])
            if self._details
            else None
        )
        if signature is not None:
            last.append(ReasoningDelta("", signature.signature()))
        raw_reason = (self._reason or "").lower()
        reason = dict(_STOP_REASONS).get(raw_reason, raw_reason)
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        return [*last, StepEnd(reason, self._usage)]

    def _deltas(self, delta: _Delta) -> list[ModelDelta]:
        deltas: list[ModelDelta] = []
        content = delta.content
        if isinstance(content, list):
            # No server wants this kind of thinking back.
            if thinking := "".join(inner.text or "" for piece in content for inner in piece.thinking or ()):
                deltas += [*self._tag_parser.flush(), ReasoningDelta(thinking)]
            content = "".join(piece.text or "" for piece in content)
        if thinking := self._thinking_text(delta):
            deltas += [*self._tag_parser.flush(), ReasoningDelta(thinking)]
        if text := content or delta.refusal:
            deltas += self._end_thinking()
            deltas += [TextDelta(text)] if self._tag_parser.is_done else self._tag_parser.feed(text)
        if delta.tool_calls:
            deltas += [*self._tag_parser.flush(), *self._end_thinking()]
            for piece in delta.tool_calls:
                deltas += self._call_deltas(piece)
        return deltas

    def _thinking_text(self, delta: _Delta) -> str:
        """Return the thinking in a chunk, and remember the field that it must be sent back in."""
        # A server that sends several fields sends the same thinking in all of them.
        thinking = delta.reasoning_content or delta.reasoning or ""
        if thinking:
            self._thinking_field = "reasoning_content" if delta.reasoning_content else "reasoning"
        if delta.reasoning_details:
            self._details = self._details or ReasoningDetails()
            details_text = self._details.add(delta.reasoning_details)
            if details_text and not thinking:
                thinking, self._thinking_field = details_text, "reasoning"
        if thinking:
            self._thinking.append(thinking)
        return thinking

    def _end_thinking(self) -> list[ModelDelta]:
        """Return the delta that closes the thinking under way, because something else begins."""
        field, self._thinking_field = self._thinking_field, ""
        return [ReasoningDelta("", ThinkingSignature(field).signature())] if field else []

    def _call_deltas(self, piece: _CallPiece) -> list[ModelDelta]:
        function = piece.function or _Function()
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        call = self._find_call(piece, function.name or "", arguments)
        if _is_whole(arguments) and call.arguments() == arguments:
            return []  # A repetition must not call the tool twice.
        deltas: list[ModelDelta] = []
        if extra := parse_object(piece.extra_content):
            deltas.append(
                ReasoningDelta("", ThinkingSignature(extra=extra, is_late=bool(call.name)).signature())
            )
        is_named_now = not call.name and bool(function.name)
        call.pieces.append(arguments)
        if is_named_now:
            call.name = function.name or ""
            deltas.append(CallDelta(call.index, call.name, call.arguments()))
        elif call.name and arguments:
            deltas.append(CallDelta(call.index, call.name, arguments))
        return deltas

    def _find_call(self, piece: _CallPiece, name: str, arguments: str) -> _Call:
        """Return the call that a piece belongs to: by its index, else by its id, else the newest.

        Some servers number every call 0. So a piece with a name and an id of its own, after a complete call,
        begins another call. A piece without an id that has complete arguments of its own, as Google's do,
        begins one too. Without a name it calls the same tool.
        """
        if piece.index is not None:
            found = self._by_index.get(piece.index)
        elif piece.id:
            found = next((call for call in self._calls if call.id == piece.id), None)
        else:
            found = self._calls[-1] if self._calls and not self._starts_call(self._calls[-1], name) else None
        other_id = bool(found and piece.id and found.id and piece.id != found.id)
        if (
            found is None
            or (other_id and self._starts_call(found, name))
            or _is_another(found, piece, arguments)
        ):
            named = found.name if found is not None and not name and not piece.id else ""
            found = _Call(len(self._calls), piece.id or "", named)
            self._calls.append(found)
            if piece.index is not None:
                self._by_index[piece.index] = found
        found.id = found.id or piece.id or ""
        return found

    def _starts_call(self, before: _Call, name: str) -> bool:
        """Return whether a piece with a name begins a call after `before` instead of extending it."""
        return bool(name) and is_complete(before.arguments())

    def _count(self, usage: msgspec.Raw) -> None:
        try:
            used = _WIRE_USAGE.decode(usage)
        except msgspec.DecodeError:
            return  # Counts only inform: a malformed one must not cost the answer.
        details = used.prompt_tokens_details or _CachedTokens()
        cached = details.cached_tokens or used.prompt_cache_hit_tokens or used.cached_tokens
        input_tokens = used.prompt_tokens or 0
        # Google and xAI count thinking only in the total.
        output_tokens = max(
            used.completion_tokens or 0, (used.total_tokens or 0) - input_tokens if input_tokens else 0
        )
        written = details.cache_write_tokens or 0
        self._usage = Usage(input_tokens, output_tokens, cached or 0, used.cost_micros, written)


def _is_another(before: _Call, piece: _CallPiece, arguments: str) -> bool:
    """Return whether a piece without an id of its own holds the arguments of another call."""
    if (piece.id and before.id) or not before.name or not _is_whole(arguments):
        return False
    written = before.arguments()
    return written != arguments and is_complete(written)


def _is_whole(arguments: str) -> bool:
    """Return whether a piece holds complete arguments. A cheap test rules out nearly all pieces."""
    return arguments[:1] == "{" and arguments[-1:] == "}" and is_complete(arguments)


def _error_in(choice: _Choice) -> bytes:
    """Return the error that ended an answer before it was complete; empty if none did."""
    if choice.error and bytes(choice.error) != b"null":
        return msgspec.json.encode({"error": choice.error})
    if choice.finish_reason not in _FAILED_REASONS:
        return b""
    why = f"it stopped in the middle ({choice.finish_reason})"
    return msgspec.json.encode({"error": {"message": why, "type": choice.finish_reason}})
