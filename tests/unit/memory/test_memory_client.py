"""Memory at a turn's start: whatever its provider does, the turn is carried out, and soon."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import MemoryOff, ProviderFailure, StoreFault
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import RECALL_BACKOFF_S, RECALLED_BYTES_MAX, RECALLED_MAX
from holdfast.domain.memories import Memory, Origin, RecalledMemory
from holdfast.domain.state.rows import SessionRow
from holdfast.memory.client import MemoryClient, SessionNotRemembered
from holdfast.memory.ports import Owner, Provider
from tests.support.in_process_app import running_app

HERE = SessionId("s_here")
REX = "The dog is called Rex."


def memory(text: str, by: str = "model", session_id: str = "", at: int = 0) -> Memory:
    return Memory(text, text, Origin(cast(Any, by), SessionId(session_id), 1, 2), at)


class Someone:
    """A provider that answers as the test says, and counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: Any = (memory(REX),)
        self.hangs: asyncio.Event | None = None
        self.error: BaseException | None = None
        self.stubborn = False
        self.asked: list[tuple[str, str, int]] = []
        self.kept: list[tuple[str, str, Origin, str]] = []
        self.ended = asyncio.Event()

    async def recall(self, query: str, scope: str, limit: int) -> Any:
        self.asked.append((query, scope, limit))
        try:
            if self.hangs is not None:
                await self.hangs.wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                raise
            assert self.hangs is not None
            await self.hangs.wait()
        finally:
            self.ended.set()
        if self.error is not None:
            raise self.error
        return self.answer

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        if self.error is not None:
            raise self.error
        self.kept.append((text, scope, origin, key))
        return memory(text)


class Stage:
    """A presence with everything around it."""

    def __init__(self, recall_s: float = 30.0) -> None:
        self.provider: Someone | None = Someone()
        self.owner: Owner | None = Owner("notes", model="openai:small")
        self.clock = FakeClock()
        self.row = SessionRow(HERE, 0, 0, agent="cook")
        self.enrolled: list[tuple[SessionId, Owner]] = []
        self.fault: StoreFault | None = None
        self.presence = MemoryClient(
            lambda: cast(Provider | None, self.provider), lambda: self.owner, self._enrol,
            self._session, self._titles, self.clock, recall_s,
            lambda text: text.replace("hunter22", "[secret]"),
        )  # fmt: skip

    @property
    def someone(self) -> Someone:
        assert self.provider is not None
        return self.provider

    async def _enrol(self, session_id: SessionId, owner: Owner) -> str:
        if self.fault is not None:
            raise self.fault
        self.enrolled.append((session_id, owner))
        return "digest"

    async def _session(self, session_id: SessionId) -> SessionRow:
        if self.fault is not None:
            raise self.fault
        return self.row

    async def _titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        return {SessionId("s_old"): "Of dogs"} if "s_old" in session_ids else {}

    async def until_asked(self, times: int) -> None:
        """It was asked so often, and what came of that is known."""
        async with asyncio.timeout(30):
            while len(self.someone.asked) < times:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert len(self.someone.asked) == times
        for _ in range(10):
            await asyncio.sleep(0)

    async def recall(self, said: str = "My dog?", given: Sequence[str] = ()) -> tuple[str, ...]:
        return await self.presence.recall(HERE, said, given)


async def test_the_current_agent_is_registered_as_owner() -> None:
    stage = Stage()
    assert await stage.presence.owner(HERE) == "digest"
    assert stage.enrolled == [(HERE, stage.owner)]
    stage.owner = None
    assert await stage.presence.owner(HERE) is None


async def test_a_store_fault_queues_the_turn_without_an_owner() -> None:
    stage = Stage()
    stage.fault = StoreFault(path="store", detail="it is away")
    assert await stage.presence.owner(HERE) == ""
    assert await stage.recall() == ()
    assert stage.someone.asked == []


async def test_it_is_asked_for_the_agents_own_memories_and_for_so_many() -> None:
    stage = Stage()
    stage.someone.answer = [memory(f"fact {i}") for i in range(RECALLED_MAX + 5)]
    assert await stage.recall() == tuple(f"fact {i}" for i in range(RECALLED_MAX))
    assert stage.someone.asked == [("My dog?", "cook", RECALLED_MAX)]
    assert stage.presence.recalls == {"found": 1}


async def test_what_is_given_is_left_out_and_what_is_too_long_is_passed_over() -> None:
    stage = Stage()
    long = "x" * (RECALLED_BYTES_MAX - 5)
    stage.someone.answer = [memory(REX), memory(long), memory("much too long"), memory("short"), memory("  ")]
    assert await stage.recall(given=[REX]) == (long, "short")
    assert await stage.recall() == (REX, "much too long", "short")
    stage.someone.answer = [memory(REX)]
    assert await stage.recall(given=[REX]) == ()
    assert stage.presence.recalls == {"found": 2, "none": 1}


async def test_known_secrets_are_gone_from_what_is_remembered_and_recalled() -> None:
    stage = Stage()
    stage.someone.answer = [memory("The door opens with hunter22.")]
    assert await stage.recall() == ("The door opens with [secret].",)
    await stage.presence.remember("Use hunter22.", HERE, 3, "call_c")
    assert stage.someone.kept == [("Use [secret].", "cook", Origin("model", HERE, 3, 3), "call_c")]


async def test_a_session_excluded_from_memory_recalls_nothing() -> None:
    stage = Stage()
    stage.row = SessionRow(HERE, 0, 0, remember=False)
    assert await stage.recall() == ()
    with pytest.raises(SessionNotRemembered):
        await stage.presence.remember("x", HERE, 1, "k")
    with pytest.raises(SessionNotRemembered):
        await stage.presence.search("x", HERE)
    assert stage.someone.asked == [] and stage.someone.kept == []


async def test_nothing_is_recalled_where_memory_is_off() -> None:
    stage = Stage()
    stage.provider = None
    assert await stage.recall() == ()
    with pytest.raises(MemoryOff):
        await stage.presence.search("dog", HERE)
    assert not stage.presence.recalls


async def test_a_slow_provider_backs_off_and_its_late_answer_is_dropped() -> None:
    stage = Stage(recall_s=0.5)
    someone = stage.someone
    someone.hangs = asyncio.Event()
    async with asyncio.timeout(30):
        assert await stage.recall() == ()
        await someone.ended.wait()
    someone.hangs = None
    assert await stage.recall() == ()
    assert len(someone.asked) == 1
    stage.clock.advance(RECALL_BACKOFF_S * 1000)
    # Nobody waits for it to show that it answers in time again.
    assert await stage.recall() == ()
    await stage.until_asked(2)
    assert await stage.recall() == (REX,)
    assert stage.presence.recalls == {"slow": 1, "resting": 2, "found": 1}


async def test_no_turn_waits_for_a_provider_that_failed_its_probe() -> None:
    stage = Stage(recall_s=0.1)
    stage.someone.hangs = asyncio.Event()
    stage.presence.probe()
    async with asyncio.timeout(30):
        await stage.someone.ended.wait()
    for _ in range(20):
        assert await stage.recall() == ()
    assert len(stage.someone.asked) == 1
    assert stage.presence.recalls == {"resting": 20}
    await stage.presence.close()


async def test_a_provider_still_slow_on_retry_backs_off_again() -> None:
    stage = Stage()
    stage.someone.error = RuntimeError("bug")
    for round_ in range(1, 4):
        assert await stage.recall() == ()
        await stage.until_asked(round_)
        stage.clock.advance(RECALL_BACKOFF_S * 1000)
    assert stage.presence.recalls == {"failed": 1, "resting": 2}


async def test_an_uncancellable_provider_blocks_nobody() -> None:
    stage = Stage(recall_s=0.1)
    someone = stage.someone
    someone.hangs, someone.stubborn = asyncio.Event(), True
    async with asyncio.timeout(30):
        assert await stage.recall() == ()
    assert not someone.ended.is_set()
    someone.hangs.set()
    async with asyncio.timeout(30):
        await someone.ended.wait()
    assert stage.presence.recalls == {"slow": 1}


@pytest.mark.parametrize(
    "error", [ProviderFailure(detail="away"), RuntimeError("bug"), asyncio.CancelledError()]
)
async def test_a_failing_provider_backs_off(error: BaseException) -> None:
    stage = Stage()
    stage.someone.error = error
    assert await stage.recall() == ()
    assert await stage.recall() == ()
    assert len(stage.someone.asked) == 1
    assert stage.presence.recalls == {"failed": 1, "resting": 1}


@pytest.mark.parametrize("rubbish", [None, 7, "text", [None], [{"id": 1}], object()])
async def test_an_invalid_recall_answer_is_a_failure(rubbish: object) -> None:
    stage = Stage()
    stage.someone.answer = rubbish
    assert await stage.recall() == ()
    assert stage.presence.recalls == {"failed": 1}


async def test_one_that_is_no_coroutine_at_all_fails_like_any_other() -> None:
    stage = Stage()
    cast(Any, stage.someone).recall = lambda query, scope, limit: 7
    assert await stage.recall() == ()
    assert stage.presence.recalls == {"failed": 1}


async def test_a_search_says_where_each_thing_comes_from() -> None:
    stage = Stage()
    stage.someone.answer = [
        memory(REX, session_id="s_old", at=1_700_000_000_000),
        memory("Likes tea.", session_id="s_gone"),
        memory("Born in May.", by="user", at=1_700_000_000_000),
        memory("Somewhere."),
    ]
    assert await stage.presence.search("dog", HERE) == [
        RecalledMemory(REX, "from the conversation “Of dogs”, 2023-11-14"),
        RecalledMemory("Likes tea.", "from an earlier conversation"),
        RecalledMemory("Born in May.", "written down by the user, 2023-11-14"),
        RecalledMemory("Somewhere.", "where it comes from is not known"),
    ]


async def test_a_tool_is_told_what_went_wrong_whatever_was_raised() -> None:
    stage = Stage()
    stage.someone.error = RuntimeError("no room")
    with pytest.raises(ProviderFailure, match="no room"):
        await stage.presence.remember("x", HERE, 1, "k")


@pytest.mark.parametrize("how", ["hangs", "raises", "rubbish"])
async def test_a_turn_is_carried_out_whatever_its_memory_does(tmp_path: Path, how: str) -> None:
    stage = Stage(recall_s=0.1)
    if how == "hangs":
        stage.someone.hangs = asyncio.Event()
    elif how == "raises":
        stage.someone.error = ZeroDivisionError("bug")
    else:
        stage.someone.answer = {"memories": 3}
    async with running_app(tmp_path, memory=stage.presence) as app:
        session_id = await app.create_session()
        for text in ("My dog?", "Hello?"):
            sent = await app.send(session_id, text)
            await app.wait_for_run(sent.run_id, "completed")
        events = await app.store.read(session_id, 0, 1000)
        given = [event.fact.memories for event in events if isinstance(event.fact, f.ContextPrepared)]
        completed = [event.fact for event in events if isinstance(event.fact, f.RunCompleted)]
    assert given == [(), ()]
    assert [(fact.owed, fact.owner) for fact in completed] == [(True, "digest")] * 2
    assert len(stage.someone.asked) == 1


@pytest.mark.parametrize("at", [2**62, 10**400, -(10**18), 253_402_300_800_000, -1])
async def test_a_day_that_there_is_not_is_not_told(at: int) -> None:
    stage = Stage()
    stage.someone.answer = [memory(REX, "user", at=at)]
    assert await stage.presence.search("dog", HERE) == [RecalledMemory(REX, "written down by the user")]


async def test_setting_the_clock_back_does_not_extend_the_backoff() -> None:
    stage = Stage()
    stage.someone.error = ProviderFailure(detail="away")
    assert await stage.recall() == ()
    stage.someone.error = None
    stage.clock.rewind(86_400_000)
    assert await stage.recall() == ()  # It is tried, with no turn waiting for it.
    await stage.until_asked(2)
    assert await stage.recall() == (REX,)
