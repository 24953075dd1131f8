"""Drop malformed tools from `tools/list` before the SDK rejects the whole list."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import mcp_types as types
from mcp.client._transport import ReadStream
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from pydantic import ValidationError

from holdfast.domain.limits import MCP_TOOLS_MAX

StreamMessage = SessionMessage | Exception
TOOLS_READ_MAX = 10 * MCP_TOOLS_MAX
_METHOD = "tools/list"


class ToolListFilter:
    """A read stream for the SDK that drops malformed tools.

    `version` is the protocol version after the handshake; until then every message passes. `dropped` holds
    the names of dropped tools, each with its problem; callers clear it before they list tools.
    """

    def __init__(self, inner: ReadStream[StreamMessage]) -> None:
        self.version = ""
        self.dropped: list[tuple[str, str]] = []
        self._inner = inner

    @property
    def last_context(self) -> object:
        """The context that the SDK reads beside a message."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> StreamMessage:
        return self._filter(await self._inner.receive())

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> "ToolListFilter":
        return self

    async def __anext__(self) -> StreamMessage:
        return self._filter(await self._inner.__anext__())

    async def __aenter__(self) -> "ToolListFilter":
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._inner.__aexit__(*error)

    def _filter(self, message: StreamMessage) -> StreamMessage:
        content = message.message if isinstance(message, SessionMessage) else None
        result = content.result if isinstance(content, types.JSONRPCResponse) else {}
        # Only a list of tools has `tools` but no `content`.
        if not self.version or not isinstance(result.get("tools"), list) or "content" in result:
            return message
        if not _list_problem(self.version, result) or _list_problem(self.version, {**result, "tools": []}):
            return message  # The list is valid, or it has a problem beside its tools.
        valid: list[Any] = []
        for tool in result["tools"][:TOOLS_READ_MAX]:
            problem = _list_problem(self.version, {**result, "tools": [tool]})
            if problem:
                self.dropped.append((_name_of(tool), f"it is not as the protocol has it ({problem})"))
            else:
                valid.append(tool)
        result["tools"] = valid
        return message


def _list_problem(version: str, result: Mapping[str, Any]) -> str:
    """Return the problem for which the SDK would reject a list of tools, or an empty text."""
    try:
        with suppress(KeyError):  # The SDK has no schema for some versions.
            validate_server_result(_METHOD, version, result)
        for tool in result["tools"]:
            types.Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        steps = first["loc"][2:] if first["loc"][:1] == ("tools",) else first["loc"]
        where = ".".join(str(step) for step in steps)
        return f"{where}: {first['msg']}" if where else first["msg"]
    except (RecursionError, UnicodeError):
        return "it cannot be read"
    return ""


def _name_of(tool: object) -> str:
    name = tool.get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""
