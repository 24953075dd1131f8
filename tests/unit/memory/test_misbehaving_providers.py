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
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.limits import RECALLED_MAX, WEBHOOK_ANSWER_BYTES_MAX
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.domain.secrets import Mask
from holdfast.memory.extraction_models import RememberedModels
from holdfast.memory.ports import Health, Owner
from holdfast.memory.provider_calls import Calls, in_time
from holdfast.memory.provider_selection import Providers
from holdfast.memory.providers.installed import BadProvider, NotReady, open_installed
from holdfast.memory.providers.webhook_wire import Answered
from holdfast.memory.scheduler import Outcome
from holdfast.settings.settings import Settings
from holdfast.store.ports import Message
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_installed_package import install
from tests.support.fake_memory_providers import Keeper, home
from tests.support.source_files import ROOT

SHELF = (ROOT / "docs/examples/memory_provider.py").read_text("utf-8")


class Panic(BaseException):
    """As libraries in other languages raise it."""


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


RUDE = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Panic("no"), Mute()]


def raising(error: BaseException) -> Callable[[], Awaitable[object]]:
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
async def test_whatever_is_raised_when_it_is_asked_is_a_failure(error: BaseException) -> None:
    with pytest.raises(ProviderFailure, match=type(error).__name__):
        await in_time(Health, raising(error), 5)
    answer = await Calls(str, 1).ask(raising(error), 5)
    assert answer.failure is not None and type(error).__name__ in answer.failure.detail
    assert answer.cut_off


async def test_one_that_gives_up_by_itself_is_a_failure_and_being_stopped_is_not() -> None:
    with pytest.raises(ProviderFailure):
        await in_time(Health, raising(asyncio.CancelledError()), 5)
    began = asyncio.Event()

    async def hangs() -> object:
        began.set()
        return await asyncio.Event().wait()

    asking = asyncio.create_task(in_time(Health, hangs, 5))
    await began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.mark.parametrize("takes_key", [True, False])
@pytest.mark.parametrize("answer", [SystemExit(3), Panic("no"), ConnectionError("cut"), 7], ids=repr)
async def test_what_breaks_while_it_is_told_is_tried_again_with_a_key_and_in_doubt_without(
    tmp_path: Path, takes_key: bool, answer: object
) -> None:
    """M16"""
    keeper = Keeper(takes_key=takes_key)
    keeper.answers = [answer]
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        outcome = await here.lifecycle.settle(session_id, asked=True)
        assert outcome.status == ("failed" if takes_key else "in_doubt")
        again = await here.lifecycle.settle(session_id, asked=True)
        assert again == (Outcome("paid", 1) if takes_key else Outcome("in_doubt"))


async def test_one_without_keys_that_says_it_kept_nothing_is_told_again(tmp_path: Path) -> None:
    keeper = Keeper(takes_key=False)
    keeper.answers = [ProviderFailure(detail="full")]
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        assert (await here.lifecycle.settle(session_id, asked=True)).status == "failed"
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)


@pytest.mark.parametrize("says", ["yes", 1, None], ids=repr)
async def test_one_that_does_not_say_whether_it_takes_keys_tells_nothing(
    tmp_path: Path, says: object
) -> None:
    keeper = Keeper()
    keeper.takes_key = says  # type: ignore[assignment]
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        assert (await here.lifecycle.settle(session_id, asked=True)).status == "no_owner"
        assert keeper.calls == [] and await here.states(session_id) == ["owed"]


# Made and closed.


@pytest.mark.parametrize(
    "error", ["SystemExit(3)", "KeyboardInterrupt()", "__import__('asyncio').CancelledError()"]
)
async def test_one_that_cannot_be_made_may_be_tried_again(site: Path, tmp_path: Path, error: str) -> None:
    install(site, "hf_rude", {"rude": "hf_rude:make"}, {"hf_rude": f"def make(given):\n    raise {error}\n"})
    with pytest.raises(NotReady, match="rude"):
        await open_installed("rude", tmp_path, {}, None)


@pytest.mark.parametrize(
    "says", ["'yes'", "1", "property(lambda self: 1 / 0)", "property(lambda self: exit(3))"]
)
async def test_keys_are_taken_or_not_and_nothing_between(site: Path, tmp_path: Path, says: str) -> None:
    text = SHELF + f"\n\nShelf.takes_key = {says}\n"
    install(site, "hf_rude", {"rude": "hf_rude:make"}, {"hf_rude": text})
    with pytest.raises(BadProvider):
        await open_installed("rude", tmp_path, {}, None)


async def test_one_that_cannot_be_closed_keeps_no_other_from_being(site: Path, tmp_path: Path) -> None:
    ends = {
        "plain": "def close(self): closed.append('plain')",
        "broken": "def close(self): raise ValueError('no')",
        "leaving": "async def close(self): raise SystemExit(3)",
        "well": "async def close(self): closed.append('well')",
    }
    modules = {
        f"hf_{name}": f"{SHELF}\n\nfrom hf_closed import closed\n\n\n{text}\n\n\nShelf.close = close\n"
        for name, text in ends.items()
    }
    install(
        site, "hf_ends", {name: f"hf_{name}:make" for name in ends}, modules | {"hf_closed": "closed = []\n"}
    )
    store, clock, mask = await SqliteStore.open(tmp_path / "store"), SystemClock(), Mask()
    models = RememberedModels(lambda: None, tmp_path, {}, mask)  # type: ignore[arg-type, return-value]
    settings = Settings(data=tmp_path, memory="plain")
    providers = Providers(settings, store, models, clock, Ids(clock), mask, lambda note: None)
    for name in ends:
        await providers.build(Owner(name))
    await providers.close()
    assert sorted(sys.modules["hf_closed"].closed) == ["plain", "well"]
    await store.close()


# What is answered.


def memory(text: str) -> Memory:
    return Memory("n_1", text, Origin("user"))


async def test_of_more_than_was_asked_for_only_so_much_is_looked_at() -> None:
    many: list[object] = [memory("tea")] * RECALLED_MAX + [object()] * 1_000

    async def recall() -> object:
        return many

    async def listed() -> object:
        return MemoryPage(tuple(many), "next")  # type: ignore[arg-type]

    assert len(await in_time(tuple[Memory, ...], recall, 5, RECALLED_MAX)) == RECALLED_MAX
    page = await in_time(MemoryPage, listed, 5, 2)
    assert (len(page.memories), page.cursor) == (2, "next")


@pytest.mark.parametrize("parts", [1, 4])
async def test_what_is_far_too_long_is_refused(parts: int) -> None:
    async def recall() -> object:
        return [memory("x" * (WEBHOOK_ANSWER_BYTES_MAX // parts + 1))] * parts

    with pytest.raises(ProviderFailure, match="more than is taken"):
        await in_time(tuple[Memory, ...], recall, 5, RECALLED_MAX)


# A long stretch.


class Pages(list[Message]):
    """Notes which thread looks at them."""

    seen_in: set[int]

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.seen_in.add(threading.get_ident())
        return super().__iter__()


async def test_a_long_stretch_is_made_ready_beside_everything_else_and_told_as_a_whole(
    tmp_path: Path,
) -> None:
    keeper, seen_in, slices = Keeper(), set[int](), list[int]()
    async with home(tmp_path, keeper) as here:
        read = here.ledger.told

        async def told(session_id: SessionId, turns: Ranges, number: int) -> Sequence[Message]:
            pages = Pages(await read(session_id, turns, number))
            pages.seen_in = seen_in
            slices.append(len(pages))
            return pages

        here.ledger.told = told  # type: ignore[method-assign]
        session_id = await here.here.begin()
        for number in range(23):
            await here.turn(session_id, str(number))
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
    assert seen_in and threading.get_ident() not in seen_in
    assert len(slices) == 2  # Not all of it at once.
    asked = [said.text for said in keeper.calls[0].messages if said.role == "user"]
    assert asked == [str(number) for number in range(23)]


@pytest.mark.parametrize("at", [-1, 253_402_300_800_000])
def test_a_receiver_names_no_time_that_there_is_not(at: int) -> None:
    answer = {"id": "n_1", "text": "tea", "made_at": at}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(answer, Answered)
    assert msgspec.convert(answer | {"made_at": 253_402_300_799_999}, Answered).memory().text == "tea"


async def test_what_a_provider_says_went_wrong_is_kept_without_its_secrets() -> None:
    failure = ProviderFailure(detail="hunter2hunter2 is refused")
    answer = await Calls(Mask(["hunter2hunter2"]).whole, 1).ask(raising(failure), 30)
    assert answer.failure is not None and "[secret] is refused" in answer.failure.detail
