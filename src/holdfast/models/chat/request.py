"""Encode a request as Chat Completions. No I/O."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.context.request import (
    AssistantMessage,
    FileContent,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.events.parts import AnyPart, File, ToolCall
from holdfast.models.chat.thinking import EXTRA, call_extras, in_tool_turns, thinking_fields
from holdfast.models.ports import ToolSpec
from holdfast.models.request_text import file_text, parts_text, safe_tool_name, single_line
from holdfast.models.wire import EFFORT

MAX_TOKENS = "max_tokens"
LONG_CALL_IDS = "ids of calls as long as ours"
"""Refused by Mistral and by servers of its models: there, a call's id is nine letters or digits."""
USER_AFTER_TOOL = "a person after a tool"
"""Refused by the same servers: an assistant message has to stand in between."""
_BRIDGE_TEXT = "I have seen that."
_ID_CHARS = 9


def encode(
    model: str,
    request: Request,
    tools: Sequence[ToolSpec],
    without: Collection[str] = (),
    answer_tokens_max: int = 0,
) -> bytes:
    """Return the body of a streaming request, `without` the optional fields that the server refuses."""
    tool_turns = in_tool_turns(request.messages)
    messages = [
        _message(message, request.files, in_loop, without)
        for message, in_loop in zip(request.messages, tool_turns, strict=True)
    ]
    if LONG_CALL_IDS in without:
        messages = [_with_short_ids(message) for message in messages]
    if USER_AFTER_TOOL in without:
        messages = list(_insert_bridges(messages))
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [_function(tool) for tool in tools],
    }
    if request.effort and EFFORT not in without:
        body["reasoning_effort"] = request.effort
    if answer_tokens_max:
        # OpenAI's newer models refuse the name that all others know.
        name = "max_completion_tokens" if MAX_TOKENS in without else MAX_TOKENS
        body[name] = answer_tokens_max
    omitted = {*without, *(() if tools else ("tools",))}
    return msgspec.json.encode({name: value for name, value in body.items() if name not in omitted})


def _with_short_ids(message: dict[str, Any]) -> dict[str, Any]:
    if "tool_call_id" in message:
        return {**message, "tool_call_id": _short_id(message["tool_call_id"])}
    if "tool_calls" in message:
        calls = [{**call, "id": _short_id(call["id"])} for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    return message


def _short_id(call_id: str) -> str:
    return hashlib.blake2b(call_id.encode("utf-8", "replace")).hexdigest()[:_ID_CHARS]


def _insert_bridges(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the messages, with an assistant message between a tool's result and a user message."""
    before = ""
    for message in messages:
        if before == "tool" and message["role"] == "user":
            yield {"role": "assistant", "content": _BRIDGE_TEXT}
        yield message
        before = message["role"]


def _function(tool: ToolSpec) -> dict[str, Any]:
    declaration = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": declaration}


def _message(
    message: RequestMessage, files: Mapping[str, FileContent], in_tool_turn: bool, without: Collection[str]
) -> dict[str, Any]:
    match message:
        case UserMessage():
            return {"role": "user", "content": _user_content(message.parts, files)}
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": parts_text(message.parts)}
        case AssistantMessage():
            encoded: dict[str, Any] = {"role": "assistant", "content": parts_text(message.parts) or None}
            calls = [_call(part) for part in message.parts if isinstance(part, ToolCall)]
            for call, extra in zip(calls, call_extras(message, without), strict=True):
                if extra is not None:
                    call[EXTRA] = extra
            if in_tool_turn:
                encoded |= thinking_fields(message, without)
            return {**encoded, "tool_calls": calls} if calls else encoded


def _user_content(parts: Sequence[AnyPart], files: Mapping[str, FileContent]) -> str | list[dict[str, Any]]:
    """Return a user message, as a string if possible, since many servers accept nothing else."""
    pieces: list[str | dict[str, Any]] = []
    for part in parts:
        content = files.get(part.blob) if isinstance(part, File) else None
        if isinstance(part, File) and content is not None:
            pieces.append(_file_content(part, content))
        else:
            pieces.append(parts_text((part,)))
    if all(isinstance(piece, str) for piece in pieces):
        return "\n\n".join(piece for piece in pieces if isinstance(piece, str))
    return [{"type": "text", "text": piece} if isinstance(piece, str) else piece for piece in pieces]


def _file_content(file: File, content: FileContent) -> str | dict[str, Any]:
    url = f"data:{file.media_type};base64,{content.body}"
    match content.kind:
        case "image":
            return {"type": "image_url", "image_url": {"url": url}}
        case "pdf":
            return {"type": "file", "file": {"filename": single_line(file.name), "file_data": url}}
    return file_text(file, content)


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": safe_tool_name(call.name), "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}
