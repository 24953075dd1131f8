"""The local model's server as a process: kept running while it is held, begun anew when it dies."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.domain.usage import Usage
from holdfast.models.endpoint import Secret
from holdfast.models.factory import made_as
from holdfast.models.local import server as keeping
from holdfast.models.local.info import LocalNotInstalled
from holdfast.models.local.model import LocalModel
from holdfast.models.local.place import Place
from holdfast.models.local.server import Llama
from holdfast.models.ports import ModelDelta, ModelFailure, StepEnd, TextDelta
from tests.support.api_client import until
from tests.support.fake_llama_packages import Packages
from tests.support.model_server import ASKED

WAIT_S = 60


@asynccontextmanager
async def held(folder: Path) -> AsyncIterator[tuple[Llama, LocalModel]]:
    packages = Packages(folder)
    llama = Llama(await packages.installed(folder / "data"), {}, "the-key-of-it")
    model = LocalModel(llama, lambda endpoint: made_as(endpoint, LocalModel.profile))
    try:
        yield llama, model
    finally:
        await model.close()


async def heard(model: LocalModel) -> list[ModelDelta]:
    async with asyncio.timeout(WAIT_S):
        return [delta async for delta in model.stream(ASKED, ())]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_runs_while_it_is_held_answers_and_is_gone_afterwards(tmp_path: Path) -> None:
    async with held(tmp_path) as (llama, model):
        assert await heard(model) == [TextDelta("Ahoy"), StepEnd("stop", Usage(cost_micros=0))]
        pid = llama.pid
        assert is_there(pid) and llama.is_running and llama.is_held
        assert model.name == "local:smollm2-135m"
        endpoint = await llama.endpoint()
        assert endpoint.host.startswith("127.0.0.1:")
        stranger = made_as(type(endpoint)(endpoint.base_url, "x", Secret("another-key")), model.profile)
        with pytest.raises(ModelFailure, match="401"):
            await anext(stranger.stream(ASKED, ()))
        await stranger.close()
        second = LocalModel(llama, lambda at: made_as(at, LocalModel.profile))
        await second.close()
        assert llama.is_running, "another holds it"
    assert not is_there(pid)
    assert not llama.is_running and not llama.is_held


async def test_one_that_was_killed_is_begun_anew(tmp_path: Path) -> None:
    async with held(tmp_path) as (llama, model):
        await heard(model)
        first = llama.pid
        os.kill(first, signal.SIGKILL)

        async def is_another() -> bool:
            return llama.pid not in (0, first)

        await until(is_another, WAIT_S)
        assert await heard(model) == [TextDelta("Ahoy"), StepEnd("stop", Usage(cost_micros=0))]


async def test_one_that_does_not_come_up_says_why_and_is_tried_again_ever_more_rarely(tmp_path: Path) -> None:
    packages = Packages(tmp_path)
    place = await packages.installed(tmp_path / "data")
    (place.library / "xllamacpp" / "__init__.py").write_text("raise OSError('no weights here')")
    waits: asyncio.Queue[float] = asyncio.Queue()
    go_on = asyncio.Semaphore(0)

    async def sleep(wait_s: float) -> None:
        waits.put_nowait(wait_s)
        await go_on.acquire()

    llama = Llama(place, {}, "key", sleep=sleep)
    model = LocalModel(llama, lambda endpoint: made_as(endpoint, LocalModel.profile))
    async with asyncio.timeout(WAIT_S):
        assert await waits.get() == keeping.AGAIN_S
        with pytest.raises(
            ModelFailure, match=r"it ended with exit code 1; it said: .*no weights here"
        ) as failed:
            await heard(model)
        assert failed.value.retryable
        go_on.release()
        assert await waits.get() == 2 * keeping.AGAIN_S
    await model.close()
    assert not llama.is_running and llama.problem == ""


async def test_what_is_not_installed_is_not_held(tmp_path: Path) -> None:
    llama = Llama(Place(tmp_path), {}, "key")
    with pytest.raises(LocalNotInstalled, match="is not installed"):
        LocalModel(llama, lambda endpoint: made_as(endpoint, LocalModel.profile))
    assert not llama.is_held
