"""Convert an MCP server's answers into tool results, and its tool list into tools that models accept."""

import base64
import re
from collections.abc import Iterable, Sequence
from typing import Any

import mcp_types as types
import msgspec
from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]

from holdfast.domain.errors import TooLarge
from holdfast.domain.events.facts import Effect
from holdfast.domain.events.parts import File, Text
from holdfast.domain.files import UnsupportedFile, clean_name, detect_media_type, file_kind
from holdfast.domain.limits import (
    MCP_DESCRIPTION_CHARS_MAX,
    MCP_SCHEMA_BYTES_MAX,
    MCP_TOOLS_MAX,
)
from holdfast.domain.mcp import McpServer
from holdfast.mcp.ports import OfferedTool, ToolListing
from holdfast.tools.ports import KeepBlob, ToolResult

_UNSUPPORTED_KEYWORDS = frozenset(
    {"$schema", "$id", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "title"}
)
"""Keywords that some models refuse at the top of a schema; without them the server still validates."""
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_NOTES_MAX = 5
_REASON_CHARS_MAX = 300
_NOT_SHOWN = "it cannot be shown here"


async def to_tool_result(answer: types.CallToolResult, keep: KeepBlob) -> ToolResult:
    """Convert an answer: keep its images as files for people, and describe what cannot be shown."""
    texts: list[str] = []
    files: list[File] = []
    for block in answer.content:
        file = await _keep_image(block, keep) if isinstance(block, types.ImageContent) else None
        files += [file] if file is not None else []
        texts.append(_block_text(block, file is not None))
    if not texts and answer.structured_content is not None:
        texts = [_json(answer.structured_content)]
    # Neither models nor stores accept a NUL or a lone surrogate.
    text = Text(_replace_unstorable("\n".join(texts)))
    return ToolResult("failed" if answer.is_error else "done", (text, *files))


async def _keep_image(image: types.ImageContent, keep: KeepBlob) -> File | None:
    try:
        content = base64.b64decode(image.data, validate=True)
        media_type = detect_media_type(content)
    except (ValueError, UnsupportedFile, TooLarge):
        return None
    if file_kind(media_type) != "image":
        return None
    blob = await keep(content)
    return File(blob, clean_name("", media_type), media_type, len(content)) if blob is not None else None


def _block_text(block: types.ContentBlock, is_kept: bool) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            note = "a person can look at it" if is_kept else _NOT_SHOWN
            return f"[image, {block.mime_type}, {_size(block.data)}: {note}]"
        case types.AudioContent():
            return f"[audio, {block.mime_type}, {_size(block.data)}: {_NOT_SHOWN}]"
        case types.ResourceLink():
            description = f": {block.description}" if block.description else ""
            return f"[{block.name}, {block.uri}{description}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as inner):
            return f"[{inner.uri}]\n{inner.text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents() as inner):
            return f"[{inner.uri}, {inner.mime_type or 'no text'}, {_size(inner.blob)}: {_NOT_SHOWN}]"
    return f"[something: {_NOT_SHOWN}]"


def _size(encoded: str) -> str:
    return f"{len(encoded) * 3 // 4:,} bytes"


def _json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (msgspec.EncodeError, UnicodeError, RecursionError, TypeError):
        return f"[something: {_NOT_SHOWN}]"


def build_listing(
    server: McpServer, listed: Iterable[types.Tool], dropped: Iterable[tuple[str, str]] = ()
) -> ToolListing:
    """Return the usable tools among those that a server lists; of two with one name, the first.

    `dropped` holds the names of malformed tools in the list, each with the problem.
    """
    found: dict[str, OfferedTool] = {}
    refused = [
        _left_out(name, reason) for name, reason in dropped if server.tools is None or name in server.tools
    ]
    for tool in listed:
        if (server.tools is not None and tool.name not in server.tools) or tool.name in found:
            continue
        try:
            found[tool.name] = _offered_tool(server, tool)
        except ValueError as error:
            refused.append(_left_out(tool.name, str(error)))
    notes = refused[:_NOTES_MAX]
    if len(refused) > _NOTES_MAX:
        notes.append(f"{len(refused) - _NOTES_MAX} more are left out.")
    if missing := [name for name in server.tools or () if name not in found]:
        notes.append(f"It does not offer {', '.join(missing)}, which its table names.")
    tools: Sequence[OfferedTool] = tuple(found.values())
    if len(tools) > MCP_TOOLS_MAX:
        notes.append(
            f"It has {len(tools)} tools, of which the first {MCP_TOOLS_MAX} are offered:"
            " name those that are wanted in `tools` of its table."
        )
    return ToolListing(tuple(tools[:MCP_TOOLS_MAX]), tuple(notes))


def _left_out(name: str, reason: str) -> str:
    return (
        f"{_replace_unstorable(name)[:100] or 'A tool without a name'} is left out:"
        f" {_replace_unstorable(reason)[:_REASON_CHARS_MAX]}."
    )


def _offered_tool(server: McpServer, tool: types.Tool) -> OfferedTool:
    """Convert a listed tool. Raises ValueError with the problem."""
    if not tool.name:
        raise ValueError("it has no name")
    try:
        encoded = msgspec.json.encode(tool.input_schema)
    except (msgspec.EncodeError, UnicodeError, RecursionError, TypeError):
        raise ValueError("the schema of its arguments cannot be written down") from None
    if len(encoded) > MCP_SCHEMA_BYTES_MAX:
        raise ValueError(f"the schema of its arguments is longer than {MCP_SCHEMA_BYTES_MAX:,} bytes")
    try:
        Draft202012Validator.check_schema(tool.input_schema)
    except SchemaError as error:
        raise ValueError(f"the schema of its arguments is wrong: {error.message[:200]}") from None
    except RecursionError:
        raise ValueError("the schema of its arguments is nested too deeply") from None
    schema = {key: value for key, value in tool.input_schema.items() if key not in _UNSUPPORTED_KEYWORDS}
    schema.setdefault("properties", {})
    description = tool.description or tool.title or ""
    return OfferedTool(
        tool.name, _replace_unstorable(description)[:MCP_DESCRIPTION_CHARS_MAX], schema, _effect(server, tool)
    )


def _effect(server: McpServer, tool: types.Tool) -> Effect:
    """Return the configured effect, else the one that the server hints at, else `unsafe`."""
    if tool.name in server.effects:
        return server.effects[tool.name]
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return "pure"
    return "idempotent" if hints is not None and hints.idempotent_hint else "unsafe"


def _replace_unstorable(text: str) -> str:
    return _UNSTORABLE.sub("\ufffd", text)
