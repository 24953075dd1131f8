"""Mask known secrets in what tools print and give back, before anybody reads it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.secrets import Mask, StreamMask, masked
from holdfast.models.ports import ToolSpec
from holdfast.tools.ports import Foreseeing, Keep, Tool, ToolResult, ToolRun


class MaskedTool:
    """A tool whose output and result hold no known secret."""

    def __init__(self, tool: Tool, mask: Mask) -> None:
        self._tool = tool
        self._mask = mask

    @property
    def spec(self) -> ToolSpec:
        return self._tool.spec

    @property
    def effect(self) -> Effect:
        return self._tool.effect

    @property
    def asks(self) -> bool:
        return self._tool.asks

    def flaw(self, arguments: str) -> str:
        return self._mask.whole(self._tool.flaw(arguments))

    async def foreseen(self, arguments: str, workspace: Path) -> str:
        if not isinstance(self._tool, Foreseeing):
            return ""
        return self._mask.whole(await self._tool.foreseen(arguments, workspace))

    async def run(self, call: ToolRun) -> ToolResult:
        output = _Output(call, self._mask)
        try:
            result = await self._tool.run(replace(call, emit=output.emit, keep=self._keeping(call.keep)))
        finally:
            output.finish()
        return (
            result if result.parts is None else replace(result, parts=masked(result.parts, self._mask.whole))
        )

    async def is_gone(self, call_id: CallId) -> bool:
        return await self._tool.is_gone(call_id)

    def _keeping(self, keep: Keep) -> Keep:
        async def kept(content: bytes) -> str | None:
            # Masked it would be another file, which nobody could put back.
            if not self._mask.holds_none(content.decode("utf-8", "replace")):
                return None
            return await keep(content)

        return kept


class _Output:
    """What a call emits on its way: each of its streams is a text of its own."""

    def __init__(self, call: ToolRun, mask: Mask) -> None:
        self._emit = call.emit
        self._streams: Mapping[Literal["stdout", "stderr"], StreamMask] = {
            "stdout": mask.stream(),
            "stderr": mask.stream(),
        }

    def emit(self, text: str, stream: Literal["stdout", "stderr"]) -> None:
        for name, other in self._streams.items():
            # The two are read as one text, in the order in which they came.
            if name != stream and (before := other.show()):
                self._emit(before, name)
        if certain := self._streams[stream].feed(text):
            self._emit(certain, stream)

    def finish(self) -> None:
        for name, stream in self._streams.items():
            if rest := stream.finish():
                self._emit(rest, name)


def masked_tools(tools: Sequence[Tool], mask: Mask) -> tuple[Tool, ...]:
    return tuple(MaskedTool(tool, mask) for tool in tools)
