"""Mask known secrets in the output and results of tools."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.secrets import SecretMask, StreamMask, mask_value
from holdfast.models.ports import ToolSpec
from holdfast.tools.ports import KeepBlob, Preflight, Tool, ToolResult, ToolRun


class MaskedTool:
    """A tool whose output and result hold no known secret."""

    def __init__(self, tool: Tool, mask: SecretMask) -> None:
        self._tool = tool
        self._mask = mask

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def effect(self) -> Effect:
        return self._tool.effect

    @property
    def needs_approval(self) -> bool:
        return self._tool.needs_approval

    def validate(self, arguments: str) -> str:
        return self._mask.mask(self._tool.validate(arguments))

    async def preflight(self, arguments: str, workspace: Path) -> str:
        if not isinstance(self._tool, Preflight):
            return ""
        return self._mask.mask(await self._tool.preflight(arguments, workspace))

    async def run(self, call: ToolRun) -> ToolResult:
        output = _MaskedOutput(call, self._mask)
        try:
            result = await self._tool.run(
                replace(call, emit=output.emit, keep=self._unless_secret(call.keep))
            )
        finally:
            output.finish()
        return (
            result
            if result.parts is None
            else replace(result, parts=mask_value(result.parts, self._mask.mask))
        )

    async def is_finished(self, call_id: CallId) -> bool:
        return await self._tool.is_finished(call_id)

    def _unless_secret(self, keep: KeepBlob) -> KeepBlob:
        async def keep_clean(content: bytes) -> str | None:
            # A masked file would be a different one, which nobody could restore.
            if not self._mask.is_clean(content.decode("utf-8", "replace")):
                return None
            return await keep(content)

        return keep_clean


class _MaskedOutput:
    """Mask a call's output before it is emitted, each stream as its own text."""

    def __init__(self, call: ToolRun, mask: SecretMask) -> None:
        self._emit = call.emit
        self._streams: Mapping[Literal["stdout", "stderr"], StreamMask] = {
            "stdout": mask.stream(),
            "stderr": mask.stream(),
        }

    def emit(self, text: str, stream: Literal["stdout", "stderr"]) -> None:
        for name, other in self._streams.items():
            # People read both streams as one text, in order of arrival.
            if name != stream and (before := other.reveal_pending()):
                self._emit(before, name)
        if masked_text := self._streams[stream].feed(text):
            self._emit(masked_text, stream)

    def finish(self) -> None:
        for name, stream in self._streams.items():
            if rest := stream.finish():
                self._emit(rest, name)


def masked_tools(tools: Sequence[Tool], mask: SecretMask) -> tuple[Tool, ...]:
    return tuple(MaskedTool(tool, mask) for tool in tools)
