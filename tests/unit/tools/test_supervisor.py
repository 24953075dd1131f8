"""Nothing a call started outlives it: not a cancellation, not the server's death, not its own tricks."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.domain.ids import CallId
from holdfast.tools.sandbox.sandbox import NO_SANDBOX
from holdfast.tools.sandbox.supervised import CommandSpec, SupervisedProcess, is_finished
from tests.support.tool_fixture import ToolHarness, bench, is_alive, read_pids, wait_for_exit

__all__ = ["bench"]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to a subreaper")

STUBBORN = 'trap "" TERM HUP INT; echo $$ >$0.pid; while true; do sleep 100; done'
FAMILY = (
    f"sh -c '{STUBBORN}' child & setsid sh -c '{STUBBORN}' session & (setsid -f sh -c '{STUBBORN}' daemon &);"
    "echo $$ >leader.pid; wait"
)
GROUP = f"sh -c '{STUBBORN}' child & echo $$ >leader.pid; wait"
COMMAND, MEMBERS = (FAMILY, 4) if sys.platform == "linux" else (GROUP, 2)

SLEEPER = "echo $PPID >supervisor.pid; echo $$ >leader.pid; exec sleep 100"

SERVER = """
import asyncio, sys
from pathlib import Path
from holdfast.tools.ports import ToolRun
from holdfast.tools.sandbox.sandbox import NO_SANDBOX
from holdfast.tools.shell import ShellTool

folder, workspace, (call_id, arguments) = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
call = ToolRun(call_id, arguments, workspace, lambda text, stream: None)
asyncio.run(ShellTool(folder, {"PATH": "/usr/bin:/bin"}, NO_SANDBOX).run(call))
"""


@contextmanager
def start_server(bench: ToolHarness, command: str) -> "Iterator[tuple[subprocess.Popen[bytes], CallId]]":
    """A process of its own that runs one command, as a server does."""
    call = bench.prepare(command=command)
    words = [sys.executable, "-c", SERVER, str(bench.store), str(bench.workspace), call.id, call.arguments]
    with subprocess.Popen(words, start_new_session=True) as server:
        try:
            yield server, call.id
        finally:
            server.kill()


def is_reaped(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def started_pids(bench: ToolHarness) -> list[int]:
    """The processes that have said who they are; one may have been killed before it could."""
    return [int(text) for path in bench.workspace.glob("*.pid") if (text := path.read_text())]


def test_cancelling_ends_all_processes_before_it_returns(bench: ToolHarness) -> None:
    async def cancelled() -> list[int]:
        call = bench.prepare(command=COMMAND)
        running = asyncio.create_task(bench.tools["shell"].run(call.tool_run()))
        pids = await asyncio.to_thread(read_pids, bench.workspace, MEMBERS)
        started = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert time.monotonic() - started < 30
        assert await bench.tools["shell"].is_finished(call.id)
        return pids

    wait_for_exit(asyncio.run(cancelled()), within_s=0)


def test_cancelling_twice_and_at_any_moment_leaves_nothing(bench: ToolHarness) -> None:
    async def cancelled(delay_s: float) -> None:
        call = bench.prepare(command="echo $$ >x.pid; exec sleep 100")
        running = asyncio.create_task(bench.tools["shell"].run(call.tool_run()))
        for _ in range(2):
            await asyncio.sleep(delay_s)
            running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await bench.tools["shell"].is_finished(call.id)

    for delay_ms in range(0, 40, 4):
        asyncio.run(cancelled(delay_ms / 1000))
        wait_for_exit(started_pids(bench), within_s=0)


def test_a_failure_to_emit_output_ends_the_command(bench: ToolHarness) -> None:
    call = bench.prepare(command="echo $$ >x.pid; echo out; sleep 100")

    def refuse(text: str, stream: str) -> None:
        raise OSError("the store is gone")

    run = call.tool_run()
    run = type(run)(run.call_id, run.arguments, run.workspace, refuse)
    with pytest.raises(OSError, match="the store is gone"):
        asyncio.run(bench.tools["shell"].run(run))
    wait_for_exit(read_pids(bench.workspace, 1), within_s=0)


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_killed_server_leaves_no_process_and_frees_the_lock(bench: ToolHarness, whole_group: bool) -> None:
    with start_server(bench, COMMAND) as (server, call_id):
        pids = read_pids(bench.workspace, MEMBERS)
        shell = bench.tools["shell"]
        assert not asyncio.run(shell.is_finished(call_id))
        if whole_group:
            os.killpg(server.pid, signal.SIGKILL)
        else:
            server.kill()
        server.wait()
        until = time.monotonic() + 30
        while not asyncio.run(shell.is_finished(call_id)):
            assert time.monotonic() < until
            time.sleep(0.002)
        assert not any(map(is_alive, pids))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_supervisor_survives_what_ends_the_server_and_cleans_up(bench: ToolHarness, number: int) -> None:
    with start_server(bench, SLEEPER) as (server, call_id):
        pids = read_pids(bench.workspace, 2)
        os.kill(int((bench.workspace / "supervisor.pid").read_text()), number)
        time.sleep(0.1)
        assert all(map(is_alive, pids))
        server.kill()
        server.wait()
        wait_for_exit(pids, within_s=30)
        assert asyncio.run(bench.tools["shell"].is_finished(call_id))


def test_a_server_that_is_stopped_keeps_its_command_and_its_lock(bench: ToolHarness) -> None:
    with start_server(bench, "echo $$ >leader.pid; exec sleep 100") as (server, call_id):
        pids = read_pids(bench.workspace, 1)
        server.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        assert all(map(is_alive, pids))
        assert not asyncio.run(bench.tools["shell"].is_finished(call_id))
        server.kill()
        server.wait()
        wait_for_exit(pids, within_s=30)


def test_a_server_killed_while_it_starts_a_command_leaves_nothing(bench: ToolHarness) -> None:
    """Wherever it stood: once it is dead and the lock is free, the command does not begin."""
    shell = bench.tools["shell"]
    with start_server(bench, "echo $$ >leader.pid; exec sleep 100") as (server, call_id):
        while not (bench.store / "calls").exists():
            assert server.poll() is None, "the server ended before it began the call"
            time.sleep(0.001)
        server.kill()
        server.wait()
        until = time.monotonic() + 30
        while not asyncio.run(shell.is_finished(call_id)):
            assert time.monotonic() < until
            time.sleep(0.002)
        before = started_pids(bench)
        time.sleep(0.3)
        assert started_pids(bench) == before
        wait_for_exit(started_pids(bench), within_s=0)


@linux_only
def test_a_command_that_kills_its_supervisor_dies_and_is_reported(bench: ToolHarness) -> None:
    call = bench.shell("echo $$ >leader.pid; sleep 100 & echo $! >child.pid; kill -KILL $PPID; sleep 100")
    assert call.outcome == "failed"
    assert call.text == "stopped from outside; whether it had finished is not known\n"
    wait_for_exit(read_pids(bench.workspace, 2), within_s=30)


@linux_only
def test_a_command_dies_even_when_server_and_supervisor_are_killed_together(bench: ToolHarness) -> None:
    with start_server(bench, SLEEPER) as (server, call_id):
        pids = read_pids(bench.workspace, 2)
        server.send_signal(signal.SIGSTOP)
        os.kill(int((bench.workspace / "supervisor.pid").read_text()), signal.SIGKILL)
        wait_for_exit(pids, within_s=30)
        assert asyncio.run(bench.tools["shell"].is_finished(call_id))
        server.kill()
        server.wait()


def test_a_call_that_never_ran_is_finished(tmp_path: Path) -> None:
    assert asyncio.run(ToolHarness(tmp_path).tools["shell"].is_finished(CallId("c_0000000000000009")))


def test_a_lock_left_by_a_crash_is_free(bench: ToolHarness) -> None:
    call = bench.prepare(command="echo again")
    (bench.store / "calls").mkdir(parents=True)
    (bench.store / "calls" / f"{call.id}.lock").touch()
    shell = bench.tools["shell"]
    assert asyncio.run(shell.is_finished(call.id))
    assert asyncio.run(shell.run(call.tool_run())).outcome == "done"
    assert list((bench.store / "calls").iterdir()) == []


def test_checking_the_lock_does_not_disturb_a_call(bench: ToolHarness) -> None:
    async def looked_at() -> None:
        call = bench.prepare(command="sleep 0.2; echo fine")
        shell = bench.tools["shell"]
        running = asyncio.create_task(shell.run(call.tool_run()))
        while not running.done():
            await shell.is_finished(call.id)
            await asyncio.sleep(0)
        assert call.text == "fine\nexit code 0\n"

    asyncio.run(looked_at())


async def test_a_supervisor_that_outlasts_the_stop_timeout_is_reaped(bench: ToolHarness) -> None:
    bench.workspace.mkdir()
    order = CommandSpec(
        "echo $PPID >supervisor.pid; sleep 100", "/bin/sh", bench.workspace, bench.folder / "lock", 0,
        {"PATH": os.environ["PATH"]}, NO_SANDBOX,
    )  # fmt: skip
    supervised = SupervisedProcess.start(order)
    (supervisor,) = await asyncio.to_thread(read_pids, bench.workspace, 1)
    os.kill(supervisor, signal.SIGSTOP)
    assert not await supervised.stop(0.05)
    del supervised
    gc.collect()  # Fails if nobody waits for the process any more.
    os.kill(supervisor, signal.SIGCONT)
    async with asyncio.timeout(30):
        while not is_reaped(supervisor):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert is_finished(bench.folder / "lock")
