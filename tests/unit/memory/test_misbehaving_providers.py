"""Providers whose code does what no provider should: it ends nothing but its own answer."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import ProviderFailure
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import RECALLED_MAX, WEBHOOK_ANSWER_BYTES_MAX
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.domain.secrets import SecretMask
from holdfast.memory.extraction_models import ExtractionModels
from holdfast.memory.ports import Health, Owner
from holdfast.memory.provider_calls import ProviderCaller, call_with_timeout
from holdfast.memory.provider_selection import MemoryProviders
from holdfast.memory.providers.installed import (
    BadMemoryProvider,
    MemoryProviderNotReady,
    open_installed_provider,
)
from holdfast.memory.providers.webhook_wire import WebhookMemory
from holdfast.memory.scheduler import SegmentCommitResult
from holdfast.settings.settings import Settings
from holdfast.store.ports import StoredMessage
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_installed_package import install
from tests.support.fake_memory_providers import FakeProvider, memory_harness
from tests.support.source_files import ROOT

EXAMPLE = (ROOT / "docs/examples/memory_provider.py").read_text("utf-8")


class NativePanic(BaseException):
    """As libraries in other languages raise it."""


class MessagelessError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


RUDE = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), NativePanic("no"), MessagelessError()]


def raise_on_call(error: BaseException) -> Callable[[], Awaitable[object]]:
    async def ask() -> object:
        raise error

    return ask


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    return folder


@pytest.mark.parametrize("error", RUDE, ids=repr)
async def test_any_exception_from_a_provider_is_a_failure(error: BaseException) -> None:
    with pytest.raises(ProviderFailure, match=type(error).__name__):
        await call_with_timeout(Health, raise_on_call(error), 5)
    answer = await ProviderCaller(str, 1).call(raise_on_call(error), 5)
    assert answer.failure is not None and type(error).__name__ in answer.failure.detail
    assert answer.cut_off


async def test_a_provider_that_cancels_itself_fails_but_cancellation_propagates() -> None:
    with pytest.raises(ProviderFailure):
        await call_with_timeout(Health, raise_on_call(asyncio.CancelledError()), 5)
    began = asyncio.Event()

    async def hangs() -> object:
        began.set()
        return await asyncio.Event().wait()

    asking = asyncio.create_task(call_with_timeout(Health, hangs, 5))
    await began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize("takes_key", [True, False])
@pytest.mark.parametrize("answer", [SystemExit(3), NativePanic("no"), ConnectionError("cut"), 7], ids=repr)
async def test_a_broken_commit_is_retried_with_a_key_and_in_doubt_without(
    tmp_path: Path, takes_key: bool, answer: object
) -> None:
    """M16"""
    provider = FakeProvider(takes_key=takes_key)
    provider.answers = [answer]
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        outcome = await harness.scheduler.commit_pending(session_id, requested=True)
        assert outcome.status == ("failed" if takes_key else "in_doubt")
        again = await harness.scheduler.commit_pending(session_id, requested=True)
        assert again == (
            SegmentCommitResult("committed", 1) if takes_key else SegmentCommitResult("in_doubt")
        )


async def test_a_keyless_provider_that_kept_nothing_is_retried(tmp_path: Path) -> None:
    provider = FakeProvider(takes_key=False)
    provider.answers = [ProviderFailure(detail="full")]
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        assert (await harness.scheduler.commit_pending(session_id, requested=True)).status == "failed"
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )


@pytest.mark.parametrize("says", ["yes", 1, None], ids=repr)
async def test_a_provider_without_takes_key_gets_no_commit(tmp_path: Path, says: object) -> None:
    provider = FakeProvider()
    provider.takes_key = says  # type: ignore[assignment]
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        assert (await harness.scheduler.commit_pending(session_id, requested=True)).status == "no_owner"
        assert provider.calls == [] and await harness.states(session_id) == ["pending"]


# Made and closed.


@pytest.mark.parametrize(
    "error", ["SystemExit(3)", "KeyboardInterrupt()", "__import__('asyncio').CancelledError()"]
)
async def test_building_a_provider_can_be_retried(site: Path, tmp_path: Path, error: str) -> None:
    install(site, "hf_rude", {"rude": "hf_rude:make"}, {"hf_rude": f"def make(given):\n    raise {error}\n"})
    with pytest.raises(MemoryProviderNotReady, match="rude"):
        await open_installed_provider("rude", tmp_path, {}, None)


@pytest.mark.parametrize(
    "says", ["'yes'", "1", "property(lambda self: 1 / 0)", "property(lambda self: exit(3))"]
)
async def test_takes_key_must_be_a_boolean(site: Path, tmp_path: Path, says: str) -> None:
    text = EXAMPLE + f"\n\nShelf.takes_key = {says}\n"
    install(site, "hf_rude", {"rude": "hf_rude:make"}, {"hf_rude": text})
    with pytest.raises(BadMemoryProvider):
        await open_installed_provider("rude", tmp_path, {}, None)


async def test_a_provider_that_fails_to_close_does_not_block_others(site: Path, tmp_path: Path) -> None:
    ends = {
        "plain": "def close(self): closed.append('plain')",
        "broken": "def close(self): raise ValueError('no')",
        "leaving": "async def close(self): raise SystemExit(3)",
        "well": "async def close(self): closed.append('well')",
    }
    modules = {
        f"hf_{name}": f"{EXAMPLE}\n\nfrom hf_closed import closed\n\n\n{text}\n\n\nShelf.close = close\n"
        for name, text in ends.items()
    }
    install(
        site, "hf_ends", {name: f"hf_{name}:make" for name in ends}, modules | {"hf_closed": "closed = []\n"}
    )
    store, clock, mask = await SqliteStore.open(tmp_path / "store"), SystemClock(), SecretMask()
    models = ExtractionModels(lambda: None, tmp_path, {}, mask)  # type: ignore[arg-type, return-value]
    settings = Settings(data=tmp_path, memory="plain")
    providers = MemoryProviders(settings, store, models, clock, IdGenerator(clock), mask, lambda note: None)
    for name in ends:
        await providers.build(Owner(name))
    await providers.close()
    assert sorted(sys.modules["hf_closed"].closed) == ["plain", "well"]
    await store.close()


# What is answered.


def memory(text: str) -> Memory:
    return Memory("n_1", text, Origin("user"))


async def test_results_beyond_the_limit_are_ignored() -> None:
    many: list[object] = [memory("tea")] * RECALLED_MAX + [object()] * 1_000

    async def recall() -> object:
        return many

    async def listed() -> object:
        return MemoryPage(tuple(many), "next")  # type: ignore[arg-type]

    assert len(await call_with_timeout(tuple[Memory, ...], recall, 5, RECALLED_MAX)) == RECALLED_MAX
    page = await call_with_timeout(MemoryPage, listed, 5, 2)
    assert (len(page.memories), page.cursor) == (2, "next")


@pytest.mark.parametrize("parts", [1, 4])
async def test_an_oversized_provider_answer_is_refused(parts: int) -> None:
    async def recall() -> object:
        return [memory("x" * (WEBHOOK_ANSWER_BYTES_MAX // parts + 1))] * parts

    with pytest.raises(ProviderFailure, match="more than is taken"):
        await call_with_timeout(tuple[Memory, ...], recall, 5, RECALLED_MAX)


# A long stretch.


class ThreadRecordingList(list[StoredMessage]):
    """Notes which thread looks at them."""

    seen_in: set[int]

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.seen_in.add(threading.get_ident())
        return super().__iter__()


async def test_a_long_segment_is_prepared_off_the_loop_and_committed_whole(
    tmp_path: Path,
) -> None:
    provider, seen_in, slices = FakeProvider(), set[int](), list[int]()
    async with memory_harness(tmp_path, provider) as harness:
        read = harness.queue.turn_messages

        async def recorded_messages(
            session_id: SessionId, turns: Ranges, number: int
        ) -> Sequence[StoredMessage]:
            pages = ThreadRecordingList(await read(session_id, turns, number))
            pages.seen_in = seen_in
            slices.append(len(pages))
            return pages

        harness.queue.turn_messages = recorded_messages  # type: ignore[method-assign]
        session_id = await harness.app.create_session()
        for number in range(23):
            await harness.run_turn(session_id, str(number))
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
    assert seen_in and threading.get_ident() not in seen_in
    assert len(slices) == 2  # Not all of it at once.
    asked = [said.text for said in provider.calls[0].messages if said.role == "user"]
    assert asked == [str(number) for number in range(23)]


@pytest.mark.parametrize("at", [-1, 253_402_300_800_000])
def test_a_memory_time_out_of_range_is_refused(at: int) -> None:
    answer = {"id": "n_1", "text": "tea", "made_at": at}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(answer, WebhookMemory)
    assert msgspec.convert(answer | {"made_at": 253_402_300_799_999}, WebhookMemory).memory().text == "tea"


async def test_secrets_are_masked_in_provider_errors() -> None:
    failure = ProviderFailure(detail="hunter2hunter2 is refused")
    answer = await ProviderCaller(SecretMask(["hunter2hunter2"]).mask, 1).call(raise_on_call(failure), 30)
    assert answer.failure is not None and "[secret] is refused" in answer.failure.detail
