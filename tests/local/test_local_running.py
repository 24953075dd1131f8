"""The real llama.cpp kept running, ended, and begun anew."""

import asyncio
import os
import signal

from holdfast.models.local.server import LlamaServer
from holdfast.models.ports import StepEnd
from tests.local.llama_server import local_server, request_for, running_model
from tests.support.api_client import wait_until

WAIT_S = 120


async def wait_for_process(server: LlamaServer, but: int = 0) -> int:
    """The pid of the process, once there is one that is not `but`."""

    async def is_so() -> bool:
        return bool(server.pid) and server.pid != but

    await wait_until(is_so, WAIT_S)
    return server.pid


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_the_real_local_server_runs_only_while_in_use() -> None:
    server = local_server()
    server.acquire()
    server.acquire()
    pid = await wait_for_process(server)
    await server.release()
    assert is_running(pid) and server.is_running
    await server.release()
    assert not is_running(pid) and not server.is_running


async def test_a_local_server_killed_during_an_answer_is_restarted() -> None:
    async with running_model("chat", answer_tokens=4_000) as model, asyncio.timeout(WAIT_S):
        server, said = model._server, 0
        first = await wait_for_process(server)
        try:
            async for _ in model.stream(request_for("Count to ten thousand, one by one."), ()):
                said += 1
                if said == 3:
                    os.kill(first, signal.SIGKILL)
        except Exception as failure:
            assert getattr(failure, "retryable", False), failure
        else:
            raise AssertionError("an answer that broke off is no whole answer")
        assert said >= 3
        second = await wait_for_process(server, but=first)
        assert second != first
        deltas = [delta async for delta in model.stream(request_for("Say hello"), ())]
        assert isinstance(deltas[-1], StepEnd)
