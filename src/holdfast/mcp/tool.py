"""A tool of an MCP server as the agent uses it, and its name here."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import MCP_PROGRESS_LINES_MAX
from holdfast.domain.mcp import SEPARATOR
from holdfast.domain.shell.commands import Unreadable, checked_arguments
from holdfast.mcp.ports import Link, Lost, NoAnswer, NotSent, Offered
from holdfast.models.ports import ToolSpec
from holdfast.tools.arguments import Refused, failed, flaw_in
from holdfast.tools.ports import ToolResult, ToolRun

_TRIES_MAX = 2
"""Times that a call is tried which may be repeated, or which did not reach its server."""
_OBJECT = msgspec.json.Decoder(dict[str, Any])
Reach = Callable[[], Awaitable[Link]]
"""The connection to the server, once it is ready. Raises NotSent."""
_CHARS_MAX = 64
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 6


class McpTool:
    """Calls `offered` over whatever connection there is at the time.

    `counted` is told how each call ended; `is_over` says whether an earlier process's server has gone.
    """

    def __init__(
        self,
        spec: ToolSpec,
        offered: Offered,
        reach: Reach,
        within_s: float,
        counted: Callable[[str], None],
        is_over: Callable[[], bool],
    ) -> None:
        self.spec = spec
        self.effect: Effect = offered.effect
        self._offered = offered
        self._reach = reach
        self._within_s = within_s
        self._counted = counted
        self._is_over = is_over

    @property
    def asks(self) -> bool:
        """One that only looks does not."""
        return self.effect != "pure"

    def flaw(self, arguments: str) -> str:
        return flaw_in(arguments, self._checked)

    def _checked(self, text: str) -> None:
        """Refuse a call without what the server says it needs. All else is for the server to say."""
        given, needed = _read(text), self.spec.parameters.get("required")
        for name in needed if isinstance(needed, list | tuple) else ():
            if isinstance(name, str) and name not in given:
                raise Refused(f"arguments: `{name}` is missing")

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = _read(call.arguments)
        except Refused as refusal:
            return failed(refusal)
        result = await self._run(call, arguments)
        self._counted(result.outcome)
        return result

    async def _run(self, call: ToolRun, arguments: Mapping[str, Any]) -> ToolResult:
        may_repeat, why = self.effect != "unsafe", ""
        for _ in range(_TRIES_MAX):
            try:
                return await self._call(call, arguments)
            except NotSent as error:  # Then it does no harm to try again, whatever it is.
                why = f"Not run: {error}"
            except (NoAnswer, Lost) as error:
                why = str(error)
                if not may_repeat:
                    call.emit(f"{why}\n", "stderr")
                    return ToolResult("unknown")
                if isinstance(error, NoAnswer):
                    break
        return failed(Refused(why))

    async def _call(self, call: ToolRun, arguments: Mapping[str, Any]) -> ToolResult:
        """Once. Raises NotSent, NoAnswer, Lost."""
        progress, link = _Progress(call), await self._reach()
        try:
            return await link.call(self._offered.name, arguments, self._within_s, progress.say, call.keep)
        finally:
            progress.end()

    async def is_gone(self, call_id: CallId) -> bool:
        return self._is_over()


class _Progress:
    """Lines of progress, so many and no more, and none once the call has ended."""

    def __init__(self, call: ToolRun) -> None:
        self._emit = call.emit
        self._left = MCP_PROGRESS_LINES_MAX

    def say(self, line: str) -> None:
        if self._left:
            self._left -= 1
            self._emit(f"{line}\n", "stdout")

    def end(self) -> None:
        self._left = 0


def _read(text: str) -> Mapping[str, Any]:
    """What the model wrote. Whether it is right is for the server to say. Raises Refused."""
    try:
        return _OBJECT.decode(checked_arguments(text))
    except Unreadable as error:
        raise Refused(f"arguments: {error}") from None
    except msgspec.DecodeError as error:
        raise Refused(f"arguments: not a JSON object ({error})") from None
    except UnicodeError:
        raise Refused("arguments: not valid Unicode text") from None
    except RecursionError:
        raise Refused("arguments: nested too deeply") from None


def named(server: str, tool: str) -> str:
    """The name under which models call it. Two tools never have the same one, whatever they are called."""
    prefix = server + SEPARATOR
    plain = _ODD.sub("_", tool)
    if plain == tool and tool and len(prefix + tool) <= _CHARS_MAX:
        return prefix + tool
    # Changed or cut it may look like another: then it ends with what tells it apart.
    digest = hashlib.blake2b(tool.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]
    room = _CHARS_MAX - len(prefix) - len(digest) - 1
    return f"{prefix}{plain[:room]}_{digest}"
