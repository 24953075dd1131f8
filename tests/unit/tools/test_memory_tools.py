"""`remember` and `recall`: what a model is told of what they did, and that nobody is asked first."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.domain.errors import HoldfastError, MemoryOff, ProviderFailure
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.limits import MEMORY_CHARS_MAX, RECALLED_BYTES_MAX
from holdfast.domain.memories import Recollection
from holdfast.tools.ports import ToolResult, ToolRun
from holdfast.tools.recall import Recall
from holdfast.tools.remember import Remember
from tests.support.in_process_app import calls, house, says


class Shelf:
    """A memory that keeps what it is given by its key."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, SessionId, int]] = {}
        self.found: list[Recollection] = []
        self.error: HoldfastError | None = None
        self.sought: list[tuple[str, SessionId]] = []

    async def remember(self, text: str, session_id: SessionId, turn: int, key: str) -> str:
        if self.error is not None:
            raise self.error
        return self.kept.setdefault(key, (text, session_id, turn))[0]

    async def search(self, query: str, session_id: SessionId) -> Sequence[Recollection]:
        if self.error is not None:
            raise self.error
        self.sought.append((query, session_id))
        return self.found


async def use(tool: Remember | Recall, **arguments: object) -> ToolResult:
    written = json.dumps(arguments)
    return await tool.run(
        ToolRun(CallId("c_1"), written, Path(), lambda text, stream: None, SessionId("s"), 4)
    )


def words(result: ToolResult) -> str:
    assert result.parts is not None
    return "".join(part.text for part in result.parts if isinstance(part, Text))


async def test_one_thing_is_remembered_once_for_a_call_and_said_so() -> None:
    shelf = Shelf()
    for _ in range(2):
        result = await use(Remember(shelf), text="  The dog is called Rex. ")
        assert (result.outcome, words(result)) == ("done", "Remembered: The dog is called Rex.")
    assert shelf.kept == {"call_c_1": ("The dog is called Rex.", SessionId("s"), 4)}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "`text` is missing"),
        ({"text": " "}, "nothing in it"),
        ({"text": "x" * (MEMORY_CHARS_MAX + 1)}, "2,001 characters"),
        ({"text": "x", "key": "k"}, "no argument `key`"),
    ],
)
async def test_what_cannot_be_remembered_is_refused_in_a_sentence(
    arguments: dict[str, object], problem: str
) -> None:
    shelf = Shelf()
    result = await use(Remember(shelf), **arguments)
    assert result.outcome == "failed" and problem in words(result)
    assert not shelf.kept


@pytest.mark.parametrize("error", [MemoryOff(), ProviderFailure(detail="it is away")])
async def test_a_memory_that_is_off_or_fails_is_a_failed_call_that_says_so(error: HoldfastError) -> None:
    shelf = Shelf()
    shelf.error = error
    kept, found = await use(Remember(shelf), text="x"), await use(Recall(shelf), query="x")
    assert (kept.outcome, words(kept)) == ("failed", f"Not remembered. {error}")
    assert (found.outcome, words(found)) == ("failed", f"Memory could not be asked. {error}")


async def test_what_is_found_is_listed_with_where_it_comes_from_and_is_bounded() -> None:
    shelf = Shelf()
    assert words(await use(Recall(shelf), query="dog")) == "Nothing is remembered about that."
    shelf.found = [Recollection("The dog\nis Rex.", "from here"), Recollection("Likes tea.", "from there")]
    found = await use(Recall(shelf), query="dog")
    assert words(found) == "- The dog\n  is Rex.\n  (from here)\n- Likes tea.\n  (from there)"
    assert shelf.sought == [("dog", SessionId("s"))] * 2
    shelf.found = [Recollection("x" * 2_000, "from here")] * 100
    assert 14_000 < len(words(await use(Recall(shelf), query="dog"))) <= RECALLED_BYTES_MAX
    assert (await use(Recall(shelf), query=" ")).outcome == "failed"


async def test_nobody_is_asked_before_something_is_remembered(tmp_path: Path) -> None:
    shelf = Shelf()
    async with house(tmp_path, approvals="ask", others=(Remember(shelf), Recall(shelf))) as here:
        here.model.steps = [
            calls("remember", '{"text": "The dog is called Rex."}'),
            calls("recall", '{"query": "dog"}'),
            says("Done."),
        ]
        session_id = await here.begin()
        sent = await here.say(session_id, "Remember that my dog is called Rex.")
        await here.until_run(sent.run_id, "completed")
        assert "approval_requested" not in await here.events(session_id)
        shown = [text for role, _, text in await here.text(session_id) if role == "tool"]
    assert shown == ["Remembered: The dog is called Rex.", "Nothing is remembered about that."]
    ((text, where, turn),) = shelf.kept.values()
    assert (text, where, turn) == ("The dog is called Rex.", session_id, 1)
