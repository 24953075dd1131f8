"""`remember` and `recall`: what a model is told of what they did, and that nobody is asked first."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.domain.errors import HoldfastError, MemoryOff, ProviderFailure
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.limits import MEMORY_CHARS_MAX, RECALLED_BYTES_MAX
from holdfast.domain.memories import RecalledMemory
from holdfast.tools.ports import ToolResult, ToolRun
from holdfast.tools.recall import RecallTool
from holdfast.tools.remember import RememberTool
from tests.support.in_process_app import running_app, text_step, tool_call_step


class FakeMemory:
    """A memory that keeps what it is given by its key."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, SessionId, int]] = {}
        self.found: list[RecalledMemory] = []
        self.error: HoldfastError | None = None
        self.sought: list[tuple[str, SessionId]] = []

    async def remember(self, text: str, session_id: SessionId, turn: int, key: str) -> str:
        if self.error is not None:
            raise self.error
        return self.kept.setdefault(key, (text, session_id, turn))[0]

    async def search(self, query: str, session_id: SessionId) -> Sequence[RecalledMemory]:
        if self.error is not None:
            raise self.error
        self.sought.append((query, session_id))
        return self.found


async def run_tool(tool: RememberTool | RecallTool, **arguments: object) -> ToolResult:
    written = json.dumps(arguments)
    return await tool.run(
        ToolRun(CallId("c_1"), written, Path(), lambda text, stream: None, SessionId("s"), 4)
    )


def result_text(result: ToolResult) -> str:
    assert result.parts is not None
    return "".join(part.text for part in result.parts if isinstance(part, Text))


async def test_a_repeated_remember_call_stores_one_memory() -> None:
    memory = FakeMemory()
    for _ in range(2):
        result = await run_tool(RememberTool(memory), text="  The dog is called Rex. ")
        assert (result.outcome, result_text(result)) == ("done", "Remembered: The dog is called Rex.")
    assert memory.kept == {"call_c_1": ("The dog is called Rex.", SessionId("s"), 4)}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "`text` is missing"),
        ({"text": " "}, "nothing in it"),
        ({"text": "x" * (MEMORY_CHARS_MAX + 1)}, "2,001 characters"),
        ({"text": "x", "key": "k"}, "no argument `key`"),
    ],
)
async def test_an_invalid_memory_is_refused_with_a_reason(arguments: dict[str, object], problem: str) -> None:
    memory = FakeMemory()
    result = await run_tool(RememberTool(memory), **arguments)
    assert result.outcome == "failed" and problem in result_text(result)
    assert not memory.kept


@pytest.mark.parametrize("error", [MemoryOff(), ProviderFailure(detail="it is away")])
async def test_a_disabled_or_failing_memory_fails_the_call(error: HoldfastError) -> None:
    memory = FakeMemory()
    memory.error = error
    kept, found = (
        await run_tool(RememberTool(memory), text="x"),
        await run_tool(RecallTool(memory), query="x"),
    )
    assert (kept.outcome, result_text(kept)) == ("failed", f"Not remembered. {error}")
    assert (found.outcome, result_text(found)) == ("failed", f"Memory could not be asked. {error}")


async def test_recall_lists_sources_within_a_size_limit() -> None:
    memory = FakeMemory()
    assert result_text(await run_tool(RecallTool(memory), query="dog")) == "Nothing is remembered about that."
    memory.found = [
        RecalledMemory("The dog\nis Rex.", "from here"),
        RecalledMemory("Likes tea.", "from there"),
    ]
    found = await run_tool(RecallTool(memory), query="dog")
    assert result_text(found) == "- The dog\n  is Rex.\n  (from here)\n- Likes tea.\n  (from there)"
    assert memory.sought == [("dog", SessionId("s"))] * 2
    memory.found = [RecalledMemory("x" * 2_000, "from here")] * 100
    assert 14_000 < len(result_text(await run_tool(RecallTool(memory), query="dog"))) <= RECALLED_BYTES_MAX
    assert (await run_tool(RecallTool(memory), query=" ")).outcome == "failed"


async def test_remember_needs_no_approval(tmp_path: Path) -> None:
    memory = FakeMemory()
    async with running_app(
        tmp_path, approvals="ask", extra_tools=(RememberTool(memory), RecallTool(memory))
    ) as app:
        app.model.steps = [
            tool_call_step("remember", '{"text": "The dog is called Rex."}'),
            tool_call_step("recall", '{"query": "dog"}'),
            text_step("Done."),
        ]
        session_id = await app.create_session()
        sent = await app.send(session_id, "Remember that my dog is called Rex.")
        await app.wait_for_run(sent.run_id, "completed")
        assert "approval_requested" not in await app.event_kinds(session_id)
        shown = [text for role, _, text in await app.entry_texts(session_id) if role == "tool"]
    assert shown == ["Remembered: The dog is called Rex.", "Nothing is remembered about that."]
    ((text, where, turn),) = memory.kept.values()
    assert (text, where, turn) == ("The dog is called Rex.", session_id, 1)
