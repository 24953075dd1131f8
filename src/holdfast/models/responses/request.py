"""Encode a request as OpenAI Responses. No I/O.

The server stores nothing (`store` is false), so a request holds the whole conversation. Thinking is sent back
as the item that it came as. The part's signature keeps the rest of that item, as a ReasoningItemSignature.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.domain.context.context import instructions_digest
from holdfast.domain.context.request import (
    AssistantMessage,
    FileContent,
    ModelProfile,
    Request,
    RequestMessage,
    ToolMessage,
    UserMessage,
)
from holdfast.domain.events.parts import AnyPart, File, Reasoning, Text, ToolCall
from holdfast.models.ports import ToolSpec
from holdfast.models.request_text import file_text, parts_text, safe_tool_name, single_line
from holdfast.models.wire import EFFORT, PER_CONVERSATION

ENCRYPTED = "reasoning.encrypted_content"
THINKING = PER_CONVERSATION + "thinking"
"""Optional field: the reasoning items. A server may refuse its own."""
SUMMARY = "reasoning.summary"
OUTPUT_TOKENS_MIN = 16
"""OpenAI refuses a lower limit."""


class ReasoningItemSignature(
    msgspec.Struct, frozen=True, tag_field="type", tag="reasoning", omit_defaults=True
):
    """A reasoning item, as JSON in the signature of a thinking part.

    `is_raw`: the part's text is the item's own content, and not a summary of it.
    """

    id: str = ""
    encrypted_content: str = ""
    summary: tuple[str, ...] = ()
    is_raw: bool = False

    def signature(self) -> str:
        return msgspec.json.encode(self).decode()


_SIGNATURE = msgspec.json.Decoder(ReasoningItemSignature)


def encode(
    model: str,
    profile: ModelProfile,
    request: Request,
    tools: Sequence[ToolSpec],
    without: Collection[str] = (),
) -> bytes:
    """Return the body of a streaming request, `without` the optional fields that the server refuses."""
    keeps_thinking = THINKING not in without
    body: dict[str, Any] = {
        "model": model,
        "instructions": request.system,
        "input": [
            item for message in request.messages for item in _items(message, request.files, keeps_thinking)
        ],
        "stream": True,
        "store": False,
        "include": [ENCRYPTED],
        "reasoning": _reasoning(request, without),
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in tools
        ],
        "parallel_tool_calls": True,
        # The server routes requests that begin alike to where that beginning is cached.
        "prompt_cache_key": instructions_digest(request.system),
        "max_output_tokens": max(profile.answer_tokens_max, OUTPUT_TOKENS_MIN),
    }
    omitted = {*without}
    if not request.system:
        omitted.add("instructions")
    if not body["reasoning"]:
        omitted.add("reasoning")
    if not profile.answer_tokens_max:
        omitted.add("max_output_tokens")
    if not tools or "tools" in without:
        omitted |= {"tools", "parallel_tool_calls"}
    return msgspec.json.encode({name: value for name, value in body.items() if name not in omitted})


def _reasoning(request: Request, without: Collection[str]) -> dict[str, str]:
    """Return the effort, and the request for a summary of the thinking."""
    fields = {} if SUMMARY in without else {"summary": "auto"}
    return {**fields, "effort": request.effort} if request.effort and EFFORT not in without else fields


def _items(
    message: RequestMessage, files: Mapping[str, FileContent], keeps_thinking: bool
) -> Iterator[dict[str, Any]]:
    match message:
        case UserMessage():
            yield {"type": "message", "role": "user", "content": _user_content(message.parts, files)}
        case ToolMessage():
            yield {
                "type": "function_call_output",
                "call_id": message.call_id,
                "output": parts_text(message.parts),
            }
        case AssistantMessage():
            # The server refuses a reasoning item that no output follows.
            ends = max(
                (i for i, part in enumerate(message.parts) if not isinstance(part, Reasoning)), default=0
            )
            for part in message.parts[: ends + 1]:
                if not isinstance(part, Reasoning):
                    yield _assistant_item(part)
                elif keeps_thinking and (item := _reasoning_item(part)) is not None:
                    yield item


def _assistant_item(part: Text | ToolCall) -> dict[str, Any]:
    if isinstance(part, Text):
        content = [{"type": "output_text", "text": part.text}]
        return {"type": "message", "role": "assistant", "content": content}
    name = safe_tool_name(part.name)
    return {"type": "function_call", "call_id": part.call_id, "name": name, "arguments": part.arguments}


def _reasoning_item(part: Reasoning) -> dict[str, Any] | None:
    """Return the reasoning item of a part; None if another protocol signed the part."""
    try:
        signature = _SIGNATURE.decode(part.signature)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    item: dict[str, Any] = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in signature.summary],
    }
    if signature.id:
        item["id"] = signature.id
    if signature.encrypted_content:
        item["encrypted_content"] = signature.encrypted_content
    if signature.is_raw:
        item["content"] = [{"type": "reasoning_text", "text": part.text}]
    return item if signature.encrypted_content or (signature.is_raw and part.text) else None


def _user_content(parts: Sequence[AnyPart], files: Mapping[str, FileContent]) -> str | list[dict[str, Any]]:
    """Return a user message, as a string if possible, since some servers accept nothing else."""
    if not any(isinstance(part, File) and part.blob in files for part in parts):
        return parts_text(parts)
    return [_content_part(part, files) for part in parts]


def _content_part(part: AnyPart, files: Mapping[str, FileContent]) -> dict[str, Any]:
    content = files.get(part.blob) if isinstance(part, File) else None
    if not isinstance(part, File) or content is None:
        return {"type": "input_text", "text": parts_text((part,))}
    url = f"data:{part.media_type};base64,{content.body}"
    match content.kind:
        case "image":
            return {"type": "input_image", "detail": "auto", "image_url": url}
        case "pdf":
            return {"type": "input_file", "filename": single_line(part.name), "file_data": url}
    return {"type": "input_text", "text": file_text(part, content)}
