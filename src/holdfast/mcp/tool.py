"""Offer a tool of an MCP server to the agent, under a name that models accept."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import MCP_PROGRESS_LINES_MAX
from holdfast.domain.mcp import SEPARATOR
from holdfast.domain.shell.commands import UnreadableArguments, validate_arguments
from holdfast.mcp.ports import CallLost, CallNotSent, CallTimeout, McpSession, OfferedTool
from holdfast.models.ports import ToolSpec
from holdfast.tools.arguments import ToolError, argument_error, failed_result
from holdfast.tools.ports import ToolResult, ToolRun

_TRIES_MAX = 2
"""Attempts at a call that is safe to repeat or did not reach its server."""
_OBJECT = msgspec.json.Decoder(dict[str, Any])
GetSession = Callable[[], Awaitable[McpSession]]
"""Return the session with the server once it is ready. Raises CallNotSent."""
_CHARS_MAX = 64
_INVALID_CHARS = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 6


class McpTool:
    """Call `offered` over the current session.

    `on_outcome` receives each call's outcome; `is_server_finished` says whether an earlier process's server
    has ended.
    """

    def __init__(
        self,
        spec: ToolSpec,
        offered: OfferedTool,
        get_session: GetSession,
        timeout_s: float,
        on_outcome: Callable[[str], None],
        is_server_finished: Callable[[], bool],
    ) -> None:
        self.spec = spec
        self.effect: Effect = offered.effect
        self._offered = offered
        self._get_session = get_session
        self._timeout_s = timeout_s
        self._on_outcome = on_outcome
        self._is_server_finished = is_server_finished

    @property
    def needs_approval(self) -> bool:
        """True unless the tool only reads."""
        return self.effect != "pure"

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, self._check_required)

    def _check_required(self, text: str) -> None:
        """Raise ToolError if a required argument is missing; the server checks the rest."""
        given, needed = _decode_arguments(text), self.spec.parameters.get("required")
        for name in needed if isinstance(needed, list | tuple) else ():
            if isinstance(name, str) and name not in given:
                raise ToolError(f"arguments: `{name}` is missing")

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            arguments = _decode_arguments(call.arguments)
        except ToolError as error:
            return failed_result(error)
        result = await self._run_with_retry(call, arguments)
        self._on_outcome(result.outcome)
        return result

    async def _run_with_retry(self, call: ToolRun, arguments: Mapping[str, Any]) -> ToolResult:
        may_repeat, reason = self.effect != "unsafe", ""
        for _ in range(_TRIES_MAX):
            try:
                return await self._call_once(call, arguments)
            except CallNotSent as error:  # The call had no effect, so even an unsafe one may run again.
                reason = f"Not run: {error}"
            except (CallTimeout, CallLost) as error:
                reason = str(error)
                if not may_repeat:
                    call.emit(f"{reason}\n", "stderr")
                    return ToolResult("unknown")
                if isinstance(error, CallTimeout):
                    break
        return failed_result(ToolError(reason))

    async def _call_once(self, call: ToolRun, arguments: Mapping[str, Any]) -> ToolResult:
        """Make one attempt. Raises CallNotSent, CallTimeout, CallLost."""
        progress, session = _Progress(call), await self._get_session()
        try:
            return await session.call(
                self._offered.name, arguments, self._timeout_s, progress.report, call.keep
            )
        finally:
            progress.stop()

    async def is_finished(self, call_id: CallId) -> bool:
        return self._is_server_finished()


class _Progress:
    """Emit a bounded number of progress lines, and none once the call has ended."""

    def __init__(self, call: ToolRun) -> None:
        self._emit = call.emit
        self._left = MCP_PROGRESS_LINES_MAX

    def report(self, line: str) -> None:
        if self._left:
            self._left -= 1
            self._emit(f"{line}\n", "stdout")

    def stop(self) -> None:
        self._left = 0


def _decode_arguments(text: str) -> Mapping[str, Any]:
    """Decode a JSON object; the server validates its fields. Raises ToolError."""
    try:
        return _OBJECT.decode(validate_arguments(text))
    except UnreadableArguments as error:
        raise ToolError(f"arguments: {error}") from None
    except msgspec.DecodeError as error:
        raise ToolError(f"arguments: not a JSON object ({error})") from None
    except UnicodeError:
        raise ToolError("arguments: not valid Unicode text") from None
    except RecursionError:
        raise ToolError("arguments: nested too deeply") from None


def tool_name_for(server: str, tool: str) -> str:
    """Return the name under which models call a tool; it is unique whatever the tool is called."""
    prefix = server + SEPARATOR
    sanitized = _INVALID_CHARS.sub("_", tool)
    if sanitized == tool and tool and len(prefix + tool) <= _CHARS_MAX:
        return prefix + tool
    # A sanitized or shortened name may equal another one, so it ends with a digest.
    digest = hashlib.blake2b(tool.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]
    room = _CHARS_MAX - len(prefix) - len(digest) - 1
    return f"{prefix}{sanitized[:room]}_{digest}"
