"""What an MCP server answers to a call, as the model reads it; and what it lists, as tools models take."""

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
from holdfast.domain.files import UnsupportedFile, clean_name, kind_of, media_type_of
from holdfast.domain.limits import (
    MCP_DESCRIPTION_CHARS_MAX,
    MCP_SCHEMA_BYTES_MAX,
    MCP_TOOLS_MAX,
)
from holdfast.domain.mcp import McpServer
from holdfast.mcp.ports import Listing, Offered
from holdfast.tools.ports import Keep, ToolResult

_UNTAKEN = frozenset({"$schema", "$id", "anyOf", "oneOf", "allOf", "not", "if", "then", "else", "title"})
"""What some models refuse at the top of a schema; without it more is allowed, and the server still checks."""
_UNFIT = re.compile(r"[\x00\ud800-\udfff]")
_SHOWN_MAX = 5
_WHY_CHARS_MAX = 300
_NOT_SHOWN = "it cannot be shown here"


async def result_of(answer: types.CallToolResult, keep: Keep) -> ToolResult:
    """What an answer says. Images are kept as files for people; of what is not shown it says what it is."""
    words: list[str] = []
    files: list[File] = []
    for block in answer.content:
        file = await _kept(block, keep) if isinstance(block, types.ImageContent) else None
        files += [file] if file is not None else []
        words.append(_shown(block, file is not None))
    if not words and answer.structured_content is not None:
        words = [_json(answer.structured_content)]
    # Neither models nor stores take a NUL or half a character.
    text = Text(_plain("\n".join(words)))
    return ToolResult("failed" if answer.is_error else "done", (text, *files))


async def _kept(image: types.ImageContent, keep: Keep) -> File | None:
    try:
        content = base64.b64decode(image.data, validate=True)
        media_type = media_type_of(content)
    except (ValueError, UnsupportedFile, TooLarge):
        return None
    if kind_of(media_type) != "image":
        return None
    blob = await keep(content)
    return File(blob, clean_name("", media_type), media_type, len(content)) if blob is not None else None


def _shown(block: types.ContentBlock, is_kept: bool) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent():
            shown = "a person can look at it" if is_kept else _NOT_SHOWN
            return f"[image, {block.mime_type}, {_size(block.data)}: {shown}]"
        case types.AudioContent():
            return f"[audio, {block.mime_type}, {_size(block.data)}: {_NOT_SHOWN}]"
        case types.ResourceLink():
            told = f": {block.description}" if block.description else ""
            return f"[{block.name}, {block.uri}{told}]"
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


def listing_of(
    server: McpServer, listed: Iterable[types.Tool], taken_out: Iterable[tuple[str, str]] = ()
) -> Listing:
    """The tools that can be used of those that a server lists; of two with one name the first.

    `taken_out` are names of more that it lists, each with what is wrong with it.
    """
    found: dict[str, Offered] = {}
    refused = [
        _left_out(name, why) for name, why in taken_out if server.tools is None or name in server.tools
    ]
    for tool in listed:
        if (server.tools is not None and tool.name not in server.tools) or tool.name in found:
            continue
        try:
            found[tool.name] = _offered(server, tool)
        except ValueError as error:
            refused.append(_left_out(tool.name, str(error)))
    told = refused[:_SHOWN_MAX]
    if len(refused) > _SHOWN_MAX:
        told.append(f"{len(refused) - _SHOWN_MAX} more are left out.")
    if missing := [name for name in server.tools or () if name not in found]:
        told.append(f"It does not offer {', '.join(missing)}, which its table names.")
    tools: Sequence[Offered] = tuple(found.values())
    if len(tools) > MCP_TOOLS_MAX:
        told.append(
            f"It has {len(tools)} tools, of which the first {MCP_TOOLS_MAX} are offered:"
            " name those that are wanted in `tools` of its table."
        )
    return Listing(tuple(tools[:MCP_TOOLS_MAX]), tuple(told))


def _left_out(name: str, why: str) -> str:
    return f"{_plain(name)[:100] or 'A tool without a name'} is left out: {_plain(why)[:_WHY_CHARS_MAX]}."


def _offered(server: McpServer, tool: types.Tool) -> Offered:
    """Raises ValueError, which says what is wrong with it."""
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
    schema = {key: value for key, value in tool.input_schema.items() if key not in _UNTAKEN}
    schema.setdefault("properties", {})
    said = tool.description or tool.title or ""
    return Offered(tool.name, _plain(said)[:MCP_DESCRIPTION_CHARS_MAX], schema, _effect(server, tool))


def _effect(server: McpServer, tool: types.Tool) -> Effect:
    """By our own word, else by what the server says of it; what says nothing may do anything."""
    if tool.name in server.effects:
        return server.effects[tool.name]
    hints = tool.annotations
    if hints is not None and hints.read_only_hint:
        return "pure"
    return "idempotent" if hints is not None and hints.idempotent_hint else "unsafe"


def _plain(text: str) -> str:
    return _UNFIT.sub("\ufffd", text)
