"""Implement `remember`: store one memory for later conversations."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.facts import Effect
from holdfast.domain.ids import CallId
from holdfast.domain.limits import MEMORY_CHARS_MAX
from holdfast.tools.arguments import (
    ToolError,
    argument_error,
    done_result,
    failed_result,
    read_arguments,
    tool_spec,
)
from holdfast.tools.ports import MemoryAccess, ToolResult, ToolRun


class RememberArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[
        str, Meta(description="One fact in one sentence that makes sense by itself, with names and dates.")
    ]


class RememberTool:
    """Store a memory, once per call however often the call runs.

    It needs no approval: the conversation shows it, and a person can change or forget it on the memory page.
    """

    spec = tool_spec(
        "remember",
        "Remember one thing for later conversations, word for word: when the user asks you to, or when it"
        f" will clearly matter again. At most {MEMORY_CHARS_MAX} characters.",
        RememberArguments,
    )
    effect: Effect = "idempotent"
    needs_approval = False

    def __init__(self, memories: MemoryAccess) -> None:
        self._memories = memories

    def validate(self, arguments: str) -> str:
        return argument_error(arguments, partial(read_arguments, shape=RememberArguments))

    async def run(self, call: ToolRun) -> ToolResult:
        try:
            text = _checked_text(read_arguments(call.arguments, RememberArguments).text)
            remembered = await self._memories.remember(
                text, call.session_id, call.turn, f"call_{call.call_id}"
            )
        except ToolError as refusal:
            return failed_result(refusal)
        except HoldfastError as error:
            return failed_result(ToolError(f"Not remembered. {error}"))
        return done_result(f"Remembered: {remembered}")

    async def is_finished(self, call_id: CallId) -> bool:
        return True  # The call runs inside the server process.


def _checked_text(text: str) -> str:
    text = text.strip()
    if not text:
        raise ToolError("text: there is nothing in it to remember")
    if len(text) > MEMORY_CHARS_MAX:
        raise ToolError(f"text: it has {len(text):,} characters; remember takes {MEMORY_CHARS_MAX:,}")
    return text
