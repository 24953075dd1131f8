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


class CountingProvider:
    """A provider that answers as the test says, and counts how often it was asked."""

    def __init__(self) -> None:
        self.answer: Any = (memory(REX),)
        self.hold: asyncio.Event | None = None
        self.error: BaseException | None = None
        self.ignores_cancel = False
        self.recalls: list[tuple[str, str, int]] = []
        self.remembered: list[tuple[str, str, Origin, str]] = []
        self.ended = asyncio.Event()

    async def recall(self, query: str, scope: str, limit: int) -> Any:
        self.recalls.append((query, scope, limit))
        try:
            if self.hold is not None:
                await self.hold.wait()
        except asyncio.CancelledError:
            if not self.ignores_cancel:
                raise
            assert self.hold is not None
            await self.hold.wait()
        finally:
            self.ended.set()
        if self.error is not None:
            raise self.error
        return self.answer

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        if self.error is not None:
            raise self.error
        self.remembered.append((text, scope, origin, key))
        return memory(text)


class ClientHarness:
    """A presence with everything around it."""

    def __init__(self, recall_s: float = 30.0) -> None:
        self.provider: CountingProvider | None = CountingProvider()
        self.owner: Owner | None = Owner("notes", model="openai:small")
        self.clock = FakeClock()
        self.row = SessionRow(HERE, 0, 0, agent="cook")
        self.enrolled: list[tuple[SessionId, Owner]] = []
        self.fault: StoreFault | None = None
        self.client = MemoryClient(
            lambda: cast(Provider | None, self.provider), lambda: self.owner, self._enrol,
            self._session, self._titles, self.clock, recall_s,
            lambda text: text.replace("hunter22", "[secret]"),
        )  # fmt: skip

    @property
    def counting_provider(self) -> CountingProvider:
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

    async def wait_for_recalls(self, times: int) -> None:
        """It was asked so often, and what came of that is known."""
        async with asyncio.timeout(30):
            while len(self.counting_provider.recalls) < times:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert len(self.counting_provider.recalls) == times
        for _ in range(10):
            await asyncio.sleep(0)

    async def recall(self, text: str = "My dog?", already_given: Sequence[str] = ()) -> tuple[str, ...]:
        return await self.client.recall(HERE, text, already_given)


async def test_the_current_agent_is_registered_as_owner() -> None:
    stage = ClientHarness()
    assert await stage.client.register_session(HERE) == "digest"
    assert stage.enrolled == [(HERE, stage.owner)]
    stage.owner = None
    assert await stage.client.register_session(HERE) is None


async def test_a_store_fault_queues_the_turn_without_an_owner() -> None:
    stage = ClientHarness()
    stage.fault = StoreFault(path="store", detail="it is away")
    assert await stage.client.register_session(HERE) == ""
    assert await stage.recall() == ()
    assert stage.counting_provider.recalls == []


async def test_it_is_asked_for_the_agents_own_memories_and_for_so_many() -> None:
    stage = ClientHarness()
    stage.counting_provider.answer = [memory(f"fact {i}") for i in range(RECALLED_MAX + 5)]
    assert await stage.recall() == tuple(f"fact {i}" for i in range(RECALLED_MAX))
    assert stage.counting_provider.recalls == [("My dog?", "cook", RECALLED_MAX)]
    assert stage.client.recall_counts == {"found": 1}


async def test_what_is_given_is_left_out_and_what_is_too_long_is_passed_over() -> None:
    stage = ClientHarness()
    long = "x" * (RECALLED_BYTES_MAX - 5)
    stage.counting_provider.answer = [
        memory(REX),
        memory(long),
        memory("much too long"),
        memory("short"),
        memory("  "),
    ]
    assert await stage.recall(already_given=[REX]) == (long, "short")
    assert await stage.recall() == (REX, "much too long", "short")
    stage.counting_provider.answer = [memory(REX)]
    assert await stage.recall(already_given=[REX]) == ()
    assert stage.client.recall_counts == {"found": 2, "none": 1}


async def test_known_secrets_are_gone_from_what_is_remembered_and_recalled() -> None:
    stage = ClientHarness()
    stage.counting_provider.answer = [memory("The door opens with hunter22.")]
    assert await stage.recall() == ("The door opens with [secret].",)
    await stage.client.remember("Use hunter22.", HERE, 3, "call_c")
    assert stage.counting_provider.remembered == [
        ("Use [secret].", "cook", Origin("model", HERE, 3, 3), "call_c")
    ]


async def test_a_session_excluded_from_memory_recalls_nothing() -> None:
    stage = ClientHarness()
    stage.row = SessionRow(HERE, 0, 0, remember=False)
    assert await stage.recall() == ()
    with pytest.raises(SessionNotRemembered):
        await stage.client.remember("x", HERE, 1, "k")
    with pytest.raises(SessionNotRemembered):
        await stage.client.search("x", HERE)
    assert stage.counting_provider.recalls == [] and stage.counting_provider.remembered == []


async def test_nothing_is_recalled_where_memory_is_off() -> None:
    stage = ClientHarness()
    stage.provider = None
    assert await stage.recall() == ()
    with pytest.raises(MemoryOff):
        await stage.client.search("dog", HERE)
    assert not stage.client.recall_counts


async def test_a_slow_provider_backs_off_and_its_late_answer_is_dropped() -> None:
    stage = ClientHarness(recall_s=0.5)
    someone = stage.counting_provider
    someone.hold = asyncio.Event()
    async with asyncio.timeout(30):
        assert await stage.recall() == ()
        await someone.ended.wait()
    someone.hold = None
    assert await stage.recall() == ()
    assert len(someone.recalls) == 1
    stage.clock.advance(RECALL_BACKOFF_S * 1000)
    # Nobody waits for it to show that it answers in time again.
    assert await stage.recall() == ()
    await stage.wait_for_recalls(2)
    assert await stage.recall() == (REX,)
    assert stage.client.recall_counts == {"slow": 1, "resting": 2, "found": 1}


async def test_no_turn_waits_for_a_provider_that_failed_its_probe() -> None:
    stage = ClientHarness(recall_s=0.1)
    stage.counting_provider.hold = asyncio.Event()
    stage.client.probe()
    async with asyncio.timeout(30):
        await stage.counting_provider.ended.wait()
    for _ in range(20):
        assert await stage.recall() == ()
    assert len(stage.counting_provider.recalls) == 1
    assert stage.client.recall_counts == {"resting": 20}
    await stage.client.close()


async def test_a_provider_still_slow_on_retry_backs_off_again() -> None:
    stage = ClientHarness()
    stage.counting_provider.error = RuntimeError("bug")
    for round_ in range(1, 4):
        assert await stage.recall() == ()
        await stage.wait_for_recalls(round_)
        stage.clock.advance(RECALL_BACKOFF_S * 1000)
    assert stage.client.recall_counts == {"failed": 1, "resting": 2}


async def test_an_uncancellable_provider_blocks_nobody() -> None:
    stage = ClientHarness(recall_s=0.1)
    someone = stage.counting_provider
    someone.hold, someone.ignores_cancel = asyncio.Event(), True
    async with asyncio.timeout(30):
        assert await stage.recall() == ()
    assert not someone.ended.is_set()
    someone.hold.set()
    async with asyncio.timeout(30):
        await someone.ended.wait()
    assert stage.client.recall_counts == {"slow": 1}


@pytest.mark.parametrize(
    "error", [ProviderFailure(detail="away"), RuntimeError("bug"), asyncio.CancelledError()]
)
async def test_a_failing_provider_backs_off(error: BaseException) -> None:
    stage = ClientHarness()
    stage.counting_provider.error = error
    assert await stage.recall() == ()
    assert await stage.recall() == ()
    assert len(stage.counting_provider.recalls) == 1
    assert stage.client.recall_counts == {"failed": 1, "resting": 1}


@pytest.mark.parametrize("rubbish", [None, 7, "text", [None], [{"id": 1}], object()])
async def test_an_invalid_recall_answer_is_a_failure(rubbish: object) -> None:
    stage = ClientHarness()
    stage.counting_provider.answer = rubbish
    assert await stage.recall() == ()
    assert stage.client.recall_counts == {"failed": 1}


async def test_one_that_is_no_coroutine_at_all_fails_like_any_other() -> None:
    stage = ClientHarness()
    cast(Any, stage.counting_provider).recall = lambda query, scope, limit: 7
    assert await stage.recall() == ()
    assert stage.client.recall_counts == {"failed": 1}


async def test_a_search_says_where_each_thing_comes_from() -> None:
    stage = ClientHarness()
    stage.counting_provider.answer = [
        memory(REX, session_id="s_old", at=1_700_000_000_000),
        memory("Likes tea.", session_id="s_gone"),
        memory("Born in May.", by="user", at=1_700_000_000_000),
        memory("Somewhere."),
    ]
    assert await stage.client.search("dog", HERE) == [
        RecalledMemory(REX, "from the conversation “Of dogs”, 2023-11-14"),
        RecalledMemory("Likes tea.", "from an earlier conversation"),
        RecalledMemory("Born in May.", "written down by the user, 2023-11-14"),
        RecalledMemory("Somewhere.", "where it comes from is not known"),
    ]


async def test_a_tool_receives_the_reason_whatever_was_raised() -> None:
    stage = ClientHarness()
    stage.counting_provider.error = RuntimeError("no room")
    with pytest.raises(ProviderFailure, match="no room"):
        await stage.client.remember("x", HERE, 1, "k")


@pytest.mark.parametrize("how", ["hangs", "raises", "rubbish"])
async def test_a_turn_is_carried_out_whatever_its_memory_does(tmp_path: Path, how: str) -> None:
    stage = ClientHarness(recall_s=0.1)
    if how == "hangs":
        stage.counting_provider.hold = asyncio.Event()
    elif how == "raises":
        stage.counting_provider.error = ZeroDivisionError("bug")
    else:
        stage.counting_provider.answer = {"memories": 3}
    async with running_app(tmp_path, memory=stage.client) as app:
        session_id = await app.create_session()
        for text in ("My dog?", "Hello?"):
            sent = await app.send(session_id, text)
            await app.wait_for_run(sent.run_id, "completed")
        events = await app.store.read(session_id, 0, 1000)
        given = [event.fact.memories for event in events if isinstance(event.fact, f.ContextPrepared)]
        completed = [event.fact for event in events if isinstance(event.fact, f.RunCompleted)]
    assert given == [(), ()]
    assert [(fact.owed, fact.owner) for fact in completed] == [(True, "digest")] * 2
    assert len(stage.counting_provider.recalls) == 1


@pytest.mark.parametrize("at", [2**62, 10**400, -(10**18), 253_402_300_800_000, -1])
async def test_an_invalid_date_is_left_out(at: int) -> None:
    stage = ClientHarness()
    stage.counting_provider.answer = [memory(REX, "user", at=at)]
    assert await stage.client.search("dog", HERE) == [RecalledMemory(REX, "written down by the user")]


async def test_setting_the_clock_back_does_not_extend_the_backoff() -> None:
    stage = ClientHarness()
    stage.counting_provider.error = ProviderFailure(detail="away")
    assert await stage.recall() == ()
    stage.counting_provider.error = None
    stage.clock.rewind(86_400_000)
    assert await stage.recall() == ()  # It is tried, with no turn waiting for it.
    await stage.wait_for_recalls(2)
    assert await stage.recall() == (REX,)
