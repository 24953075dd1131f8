"""Encode a request as Anthropic Messages. No I/O.

**Signed thinking.** A thinking block is sent back as it came: its text, and the signature that is kept with
it (`Reasoning.signature`). A redacted block has no text and no signature but one opaque value; it is kept as
REDACTED followed by that value. Signatures are base 64, so neither can be taken for the other.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.context.request import (
    AssistantMessage,
    Effort,
    FileContent,
    ModelProfile,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.decisions.tools import is_complete
from holdfast.domain.events.parts import File, Reasoning, Text, ToolCall
from holdfast.models.ports import ToolSpec
from holdfast.models.request_text import file_text, parts_text, safe_tool_name, single_line
from holdfast.models.wire import EFFORT, PER_CONVERSATION

REDACTED = "redacted_thinking:"
SIGNED_THINKING = PER_CONVERSATION + "thinking"
"""Optional field: the thinking that is sent back."""
LONG_MAX_TOKENS = "max_tokens.long"
"""Optional field: an answer limit above what every model accepts."""
MAX_TOKENS_SAFE = 4_096
"""An answer limit that every model accepts."""
THINKING_TOKENS_MIN = 1_024
"""The smallest budget for thinking that a model accepts."""
_ADAPTIVE_SINCE, _ENABLED_SINCE = (4, 6), (3, 7)
_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_INVALID_ID_CHARS = re.compile(r"[^A-Za-z0-9_-]")
_THINKING_TYPES = ("thinking", "redacted_thinking")
_EPHEMERAL = "ephemeral"

Block = dict[str, Any]
MessageDict = dict[str, Any]


def encode(
    model: str,
    profile: ModelProfile,
    request: Request,
    tools: Sequence[ToolSpec],
    without: Collection[str] = (),
) -> bytes:
    """Return the body of a streaming request, `without` the optional fields that the server refuses."""
    signed_by = "" if SIGNED_THINKING in without else profile.provider
    messages = _messages(request, signed_by)
    max_tokens = (
        min(profile.answer_tokens, MAX_TOKENS_SAFE) if LONG_MAX_TOKENS in without else profile.answer_tokens
    )
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": max_tokens,
        "system": [_text_block(request.system)] if request.system.strip() else [],
        "messages": messages,
        "tools": [_tool(tool) for tool in tools] or _former_tools(messages),
        "stream": True,
        "thinking": _thinking_config(
            model, max_tokens, messages, "thinking.display" not in without, request.effort
        ),
        "output_config": _output_config(model, request.effort) if EFFORT not in without else None,
    }
    if body["tools"] and not tools:
        body["tool_choice"] = {"type": "none"}
    body = {name: value for name, value in body.items() if value and name not in without}
    if "cache_control" not in without:
        _mark_cache_points(body)
    return msgspec.json.encode(body)


def _tool(tool: ToolSpec) -> Block:
    return {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}


def _former_tools(messages: Sequence[MessageDict]) -> list[Block]:
    """Return the tools that a conversation has used: the server refuses calls of undeclared tools."""
    used = (
        block["name"] for message in messages for block in message["content"] if block["type"] == "tool_use"
    )
    return [
        {"name": name, "description": "No longer available.", "input_schema": {"type": "object"}}
        for name in dict.fromkeys(used)
    ]


# Messages: the roles alternate, and each message is a list of blocks.


def _messages(request: Request, signed_by: str) -> list[MessageDict]:
    """Return alternating messages. Tool results come first in theirs, and the user's words join them."""
    messages: list[MessageDict] = []
    for message in request.messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if blocks := _blocks(message, request.files, signed_by):
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
    return messages


def _blocks(message: RequestMessage, files: Mapping[str, FileContent], signed_by: str) -> list[Block]:
    match message:
        case UserMessage():
            return [_user_block(part, files) for part in message.parts]
        case ToolMessage():
            return [_tool_result_block(message)]
        case AssistantMessage():
            return _assistant_blocks(message, signed_by)


def _user_block(part: Text | File, files: Mapping[str, FileContent]) -> Block:
    content = files.get(part.blob) if isinstance(part, File) else None
    if not isinstance(part, File) or content is None:
        return _text_block(parts_text((part,)))
    source = {"type": "base64", "media_type": part.media_type, "data": content.body}
    match content.kind:
        case "image":
            return {"type": "image", "source": source}
        case "pdf":
            return {"type": "document", "source": source, "title": single_line(part.name)}
    return _text_block(file_text(part, content))


def _tool_result_block(message: ToolMessage) -> Block:
    result = {
        "type": "tool_result",
        "tool_use_id": _safe_id(message.call_id),
        "content": parts_text(message.parts),
    }
    return {**result, "is_error": True} if message.failed else result


def _assistant_blocks(message: AssistantMessage, signed_by: str) -> list[Block]:
    blocks: list[Block] = []
    for part in message.parts:
        match part:
            case Text() if part.text.strip():
                blocks.append(_text_block(part.text))
            case Reasoning() if part.signature and part.provider == signed_by:
                blocks.append(_thinking_block(part))
            case ToolCall():
                blocks.append(_tool_use_block(part))
    # The server refuses a message that ends with thinking, as one may after an answer was cut off.
    while blocks and blocks[-1]["type"] in _THINKING_TYPES:
        blocks.pop()
    return blocks


def _thinking_block(part: Reasoning) -> Block:
    if part.signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": part.signature.removeprefix(REDACTED)}
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _tool_use_block(part: ToolCall) -> Block:
    arguments = part.arguments if is_complete(part.arguments) else "{}"
    return {
        "type": "tool_use",
        "id": _safe_id(part.call_id),
        "name": safe_tool_name(part.name),
        "input": msgspec.Raw(arguments.encode()),
    }


def _safe_id(call_id: str) -> str:
    return _INVALID_ID_CHARS.sub("_", call_id)


def _text_block(text: str) -> Block:
    return {"type": "text", "text": text}


# Thinking.


def _output_config(model: str, effort: Effort | None) -> Block | None:
    """Return the effort, for models that choose how much to think; an unknown model may be one."""
    version = _version(model)
    return {"effort": effort} if effort and not (0, 0) < version < _ADAPTIVE_SINCE else None


def _thinking_config(
    model: str,
    answer_tokens: int,
    messages: Sequence[MessageDict],
    is_shown: bool,
    effort: Effort | None = None,
) -> Block | None:
    """Return the request for thinking: as much as the model chooses, or up to a budget, or none.

    Claude chooses by itself since 4.6, and from 4.7 on accepts nothing else; it shows a summary on request.
    Older versions need a budget, which is part of the answer's limit, and continue with calls only after an
    answer that began with thinking. Nothing is known of other models, so they are not asked to think.
    """
    if messages[-1]["role"] == "assistant":
        return None  # The model continues a partial answer without new thinking.
    version = _version(model)
    if version >= _ADAPTIVE_SINCE:
        return {"type": "adaptive", "display": "summarized"} if is_shown else {"type": "adaptive"}
    default = answer_tokens // 2
    if version < _ENABLED_SINCE or default < THINKING_TOKENS_MIN or _continues_without_thinking(messages):
        return None
    budget = {"low": answer_tokens // 8, "high": answer_tokens * 3 // 4}.get(effort or "", default)
    return {"type": "enabled", "budget_tokens": max(budget, THINKING_TOKENS_MIN)}


def _version(model: str) -> tuple[int, int]:
    if "claude-mythos-preview" in model:
        return _ADAPTIVE_SINCE
    found = _VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _continues_without_thinking(messages: Sequence[MessageDict]) -> bool:
    """Return whether tool results continue an answer that began without thinking."""
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in _THINKING_TYPES


# The prompt's cache.


def _mark_cache_points(body: dict[str, Any]) -> None:
    """Mark the ends of what the cache can hold: tools, instructions, the last two user messages.

    The request before this one ended at the last user message but one. It is marked again because the search
    in the cache goes back only so many blocks, and one answer may have more calls than that.
    """
    user_contents = [message["content"] for message in body["messages"] if message["role"] == "user"]
    for blocks in (body.get("tools"), body.get("system"), *user_contents[-2:]):
        if blocks:
            blocks[-1]["cache_control"] = {"type": _EPHEMERAL}
