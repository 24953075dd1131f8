"""The real llama.cpp kept running, ended, and begun anew."""

import asyncio
import os
import signal

from holdfast.models.local.server import Llama
from holdfast.models.ports import StepEnd
from tests.local.llama_server import answering, llama, saying
from tests.support.api_client import until

WAIT_S = 120


async def running(server: Llama, but: int = 0) -> int:
    """The pid of the process, once there is one that is not `but`."""

    async def is_so() -> bool:
        return bool(server.pid) and server.pid != but

    await until(is_so, WAIT_S)
    return server.pid


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_it_runs_while_somebody_holds_it_and_then_no_longer() -> None:
    server = llama()
    server.hold()
    server.hold()
    pid = await running(server)
    await server.release()
    assert is_there(pid) and server.is_running
    await server.release()
    assert not is_there(pid) and not server.is_running


async def test_one_that_was_killed_in_the_middle_of_an_answer_is_begun_anew_and_answers() -> None:
    async with answering("chat", answer_tokens=4_000) as model, asyncio.timeout(WAIT_S):
        server, said = model._llama, 0
        first = await running(server)
        try:
            async for _ in model.stream(saying("Count to ten thousand, one by one."), ()):
                said += 1
                if said == 3:
                    os.kill(first, signal.SIGKILL)
        except Exception as failure:
            assert getattr(failure, "retryable", False), failure
        else:
            raise AssertionError("an answer that broke off is no whole answer")
        assert said >= 3
        second = await running(server, but=first)
        assert second != first
        deltas = [delta async for delta in model.stream(saying("Say hello"), ())]
        assert isinstance(deltas[-1], StepEnd)
