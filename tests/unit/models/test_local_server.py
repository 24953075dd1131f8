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
from holdfast.models.factory import build_local_client
from holdfast.models.local import server as keeping
from holdfast.models.local.info import LocalNotInstalled
from holdfast.models.local.install_dir import LocalModelDir
from holdfast.models.local.model import LocalModel
from holdfast.models.local.server import LlamaServer
from holdfast.models.ports import ModelDelta, ModelFailure, StepEnd, TextDelta
from tests.support.api_client import wait_until
from tests.support.fake_llama_packages import Packages
from tests.support.model_server import REQUEST

WAIT_S = 60


@asynccontextmanager
async def running_model(folder: Path) -> AsyncIterator[tuple[LlamaServer, LocalModel]]:
    packages = Packages(folder)
    llama = LlamaServer(await packages.installed(folder / "data"), {}, "the-key-of-it")
    model = LocalModel(llama, lambda endpoint: build_local_client(endpoint, LocalModel.profile))
    try:
        yield llama, model
    finally:
        await model.close()


async def collect_deltas(model: LocalModel) -> list[ModelDelta]:
    async with asyncio.timeout(WAIT_S):
        return [delta async for delta in model.stream(REQUEST, ())]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_local_server_runs_while_in_use_and_exits_afterwards(tmp_path: Path) -> None:
    async with running_model(tmp_path) as (llama, model):
        assert await collect_deltas(model) == [TextDelta("Ahoy"), StepEnd("stop", Usage(cost_micros=0))]
        pid = llama.pid
        assert is_running(pid) and llama.is_running and llama.is_in_use
        assert model.name == "local:smollm2-135m"
        endpoint = await llama.endpoint()
        assert endpoint.host.startswith("127.0.0.1:")
        other_client = build_local_client(
            type(endpoint)(endpoint.base_url, "x", Secret("another-key")), model.profile
        )
        with pytest.raises(ModelFailure, match="401"):
            await anext(other_client.stream(REQUEST, ()))
        await other_client.close()
        second = LocalModel(llama, lambda at: build_local_client(at, LocalModel.profile))
        await second.close()
        assert llama.is_running, "another holds it"
    assert not is_running(pid)
    assert not llama.is_running and not llama.is_in_use


async def test_a_killed_local_server_is_restarted(tmp_path: Path) -> None:
    async with running_model(tmp_path) as (llama, model):
        await collect_deltas(model)
        first = llama.pid
        os.kill(first, signal.SIGKILL)

        async def is_another() -> bool:
            return llama.pid not in (0, first)

        await wait_until(is_another, WAIT_S)
        assert await collect_deltas(model) == [TextDelta("Ahoy"), StepEnd("stop", Usage(cost_micros=0))]


async def test_a_local_server_that_fails_to_start_is_retried_with_backoff(tmp_path: Path) -> None:
    packages = Packages(tmp_path)
    place = await packages.installed(tmp_path / "data")
    (place.library / "xllamacpp" / "__init__.py").write_text("raise OSError('no weights here')")
    waits: asyncio.Queue[float] = asyncio.Queue()
    go_on = asyncio.Semaphore(0)

    async def sleep(wait_s: float) -> None:
        waits.put_nowait(wait_s)
        await go_on.acquire()

    llama = LlamaServer(place, {}, "key", sleep=sleep)
    model = LocalModel(llama, lambda endpoint: build_local_client(endpoint, LocalModel.profile))
    async with asyncio.timeout(WAIT_S):
        assert await waits.get() == keeping.BACKOFF_S
        with pytest.raises(
            ModelFailure, match=r"it ended with exit code 1; it said: .*no weights here"
        ) as failed:
            await collect_deltas(model)
        assert failed.value.retryable
        go_on.release()
        assert await waits.get() == 2 * keeping.BACKOFF_S
    await model.close()
    assert not llama.is_running and llama.problem == ""


async def test_a_server_that_is_not_installed_cannot_be_acquired(tmp_path: Path) -> None:
    llama = LlamaServer(LocalModelDir(tmp_path), {}, "key")
    with pytest.raises(LocalNotInstalled, match="is not installed"):
        LocalModel(llama, lambda endpoint: build_local_client(endpoint, LocalModel.profile))
    assert not llama.is_in_use
