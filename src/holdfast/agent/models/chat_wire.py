"""Chat Completions as bytes: a request encoded, the chunks of an answer decoded. No I/O.

Follows OpenAI's reference, and what servers that claim to speak it do otherwise: thinking in
`reasoning_content` or `reasoning`, calls without `index`, calls that come whole, names that are repeated.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.agent.models.wire import ErrorInStream
from holdfast.agent.ports import (
    CallDelta,
    ModelDelta,
    ReasoningDelta,
    StepEnd,
    TextDelta,
    ToolSpec,
)
from holdfast.domain.context import (
    AssistantMessage,
    FileContent,
    Profile,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.parts import AnyPart, File, Text, ToolCall
from holdfast.domain.tools import is_complete
from holdfast.domain.usage import Usage

NAME_CHARS_MAX = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_TICKS = re.compile(r"`{3,}")


class ChatWire:
    """OpenAI Chat Completions, as everybody speaks it."""

    path = "chat/completions"
    optional = (("stream_options", "stream_options"), ("tools", "does not support tools"))

    def encode(
        self,
        model: str,
        profile: Profile,
        request: Request,
        tools: Sequence[ToolSpec],
        without: Collection[str],
    ) -> bytes:
        return encode(model, request, tools, without)

    def decoder(self) -> "ChatDecoder":
        return ChatDecoder()


# The request.


def encode(model: str, request: Request, tools: Sequence[ToolSpec], without: Collection[str] = ()) -> bytes:
    """The body of a streaming request, `without` the optional fields that a server does not take."""
    messages = [_message(message, request.files) for message in request.messages]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": tool} for tool in tools],
    }
    unwanted = {*without, *(() if tools else ("tools",))}
    return msgspec.json.encode({name: value for name, value in body.items() if name not in unwanted})


def _message(message: RequestMessage, files: Mapping[str, FileContent]) -> dict[str, Any]:
    match message:
        case UserMessage():
            return {"role": "user", "content": _said(message.parts, files)}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": _words(message.parts)}
        case AssistantMessage():
            # Thinking does not go back: this protocol has no field for it that servers agree on.
            calls = [_call(part) for part in message.parts if isinstance(part, ToolCall)]
            said: dict[str, Any] = {"role": "assistant", "content": _words(message.parts) or None}
            return {**said, "tool_calls": calls} if calls else said


def _said(parts: Sequence[AnyPart], files: Mapping[str, FileContent]) -> str | list[dict[str, Any]]:
    """What a person said: a string wherever that is enough, since many servers take nothing else."""
    pieces: list[str | dict[str, Any]] = []
    for part in parts:
        content = files.get(part.blob) if isinstance(part, File) else None
        if isinstance(part, File) and content is not None:
            pieces.append(_shown(part, content))
        else:
            pieces.append(_words((part,)))
    if all(isinstance(piece, str) for piece in pieces):
        return "\n\n".join(piece for piece in pieces if isinstance(piece, str))
    return [{"type": "text", "text": piece} if isinstance(piece, str) else piece for piece in pieces]


def _shown(file: File, content: FileContent) -> str | dict[str, Any]:
    name, url = _on_one_line(file.name), f"data:{file.media_type};base64,{content.body}"
    match content.kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": url}}
        case "pdf":
            return {"type": "file", "file": {"filename": name, "file_data": url}}
        case "text":
            # Fences that nothing inside the file can close.
            longest = max(map(len, _TICKS.findall(content.body)), default=2)
            fence = "`" * (longest + 1)
            return f"File {name}:\n{fence}\n{content.body.rstrip(chr(10))}\n{fence}"
    return f"[file {name} {content.body}]"


def _words(parts: Sequence[AnyPart]) -> str:
    words = []
    for part in parts:
        if isinstance(part, Text):
            words.append(part.text)
        elif isinstance(part, File):
            words.append(f"[file {_on_one_line(part.name)}]")
    return "\n\n".join(words)


def _on_one_line(name: str) -> str:
    return " ".join(name.split())


def _call(call: ToolCall) -> dict[str, Any]:
    # A name that a model made up may hold what servers refuse, and they would refuse it for ever.
    name = _NOT_IN_NAMES.sub("_", call.name)[:NAME_CHARS_MAX] or "unknown"
    return {"id": call.call_id, "type": "function", "function": {"name": name, "arguments": call.arguments}}


# The answer.


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()
    object: str | None = None


class _CachedTokens(msgspec.Struct):
    cached_tokens: int | None = None


class _Used(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _CachedTokens | None = None
    prompt_cache_hit_tokens: int | None = None


class _Call(msgspec.Struct):
    """A call while it is written. `place` is its number in the answer; without a name it is held back."""

    place: int
    id: str = ""
    name: str = ""
    written: list[str] = msgspec.field(default_factory=list)

    def arguments(self) -> str:
        return "".join(self.written)


_CHUNK = msgspec.json.Decoder(_Chunk)
_USED = msgspec.json.Decoder(_Used)
_STOP_REASONS = (("function_call", "tool_calls"), ("max_tokens", "length"), ("", "stop"))


class ChatDecoder:
    """The data of an answer's events in, deltas out. One decoder reads one answer."""

    def __init__(self) -> None:
        self.is_done = False
        self._reason: str | None = None
        self._usage = Usage()
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    @property
    def is_finished(self) -> bool:
        """Whether the answer is whole; its usage may still come."""
        return self.is_done or self._reason is not None

    def feed(self, data: bytes) -> list[ModelDelta]:
        """The deltas in one event. Raises ErrorInStream, or ValueError for what is not a chunk."""
        if data == b"[DONE]":
            self.is_done = True
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
        if choice.finish_reason:
            self._reason = choice.finish_reason
        delta = choice.delta or choice.message
        return self._deltas(delta) if delta is not None else []

    def end(self) -> list[ModelDelta]:
        """What closes the answer: calls whose arguments were left out, and its one StepEnd."""
        last: list[ModelDelta] = []
        for call in self._calls:
            arguments = call.arguments()
            if call.name and not arguments.strip():
                # No arguments at all is how some servers write a call of a tool that takes none.
                last.append(CallDelta(call.place, call.name, "{}"))
            elif arguments and not call.name:
                last.append(CallDelta(call.place, "", arguments))
        reason = dict(_STOP_REASONS).get(self._reason or "", self._reason or "")
        if reason == "stop" and self._calls:
            reason = "tool_calls"
        return [*last, StepEnd(reason, self._usage)]

    def _deltas(self, delta: _Delta) -> list[ModelDelta]:
        deltas: list[ModelDelta] = []
        # A server that sends both fields sends the same thought in both.
        if thought := delta.reasoning_content or delta.reasoning:
            deltas.append(ReasoningDelta(thought))
        if said := delta.content or delta.refusal:
            deltas.append(TextDelta(said))
        if delta.tool_calls:
            deltas += [piece for call in delta.tool_calls if (piece := self._call_delta(call)) is not None]
        return deltas

    def _call_delta(self, piece: _CallPiece) -> CallDelta | None:
        function = piece.function or _Function()
        arguments = function.arguments or ""
        if not isinstance(arguments, str):
            arguments = msgspec.json.encode(arguments).decode()
        call = self._call_of(piece, function.name or "")
        is_named_now = not call.name and bool(function.name)
        call.written.append(arguments)
        if is_named_now:
            call.name = function.name or ""
            return CallDelta(call.place, call.name, call.arguments())
        return CallDelta(call.place, call.name, arguments) if call.name and arguments else None

    def _call_of(self, piece: _CallPiece, name: str) -> _Call:
        """The call that a piece belongs to: by its index, else by its id, else the newest.

        Some servers number every call 0. A piece with a name and an id of its own, after a call that is
        whole, begins another.
        """
        if piece.index is not None:
            found = self._by_index.get(piece.index)
        elif piece.id:
            found = next((call for call in self._calls if call.id == piece.id), None)
        else:
            found = self._calls[-1] if self._calls and not self._begins(self._calls[-1], name) else None
        other_id = bool(found and piece.id and found.id and piece.id != found.id)
        if found is None or (other_id and self._begins(found, name)):
            found = _Call(len(self._calls), piece.id or "")
            self._calls.append(found)
            if piece.index is not None:
                self._by_index[piece.index] = found
        found.id = found.id or piece.id or ""
        return found

    def _begins(self, before: _Call, name: str) -> bool:
        """Whether a piece that names a tool comes after `before` rather than belonging to it."""
        return bool(name) and is_complete(before.arguments())

    def _count(self, usage: msgspec.Raw) -> None:
        try:
            used = _USED.decode(usage)
        except msgspec.DecodeError:
            return  # Counts are told, not relied on: an odd one must not cost the answer.
        details = used.prompt_tokens_details
        cached = (details.cached_tokens if details else None) or used.prompt_cache_hit_tokens
        self._usage = Usage(used.prompt_tokens or 0, used.completion_tokens or 0, cached or 0)
