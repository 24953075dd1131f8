"""The shell: what a command sees, says and is allowed; and that its end is the end of all it started."""

import asyncio
import os
import socket
import sys
import time
from pathlib import Path

import pytest
import uvloop

from holdfast.domain.limits import SHELL_COMMAND_BYTES_MAX, SHELL_HEAD_BYTES_MAX, SHELL_TAIL_BYTES_MAX
from tests.support.tool_fixture import RecordedCall, ToolHarness, bench, open_files, read_pids, wait_for_exit

__all__ = ["bench"]

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux hands orphans to a subreaper")


def test_a_command_ends_with_its_exit_code(bench: ToolHarness) -> None:
    good, bad = bench.shell("echo fine"), bench.shell("echo out; echo err >&2; exit 3")
    assert (good.outcome, good.text) == ("done", "fine\nexit code 0\n")
    assert bad.outcome == "failed"
    assert bad.text.endswith("exit code 3\n")
    assert bad.emitted("stderr") == "err\n"
    assert bad.emitted("stdout") == "out\nexit code 3\n"


def test_a_command_killed_by_a_signal_says_so(bench: ToolHarness) -> None:
    call = bench.shell("printf half; kill -KILL $$")
    assert (call.outcome, call.text) == ("failed", "half\nkilled by signal 9 (SIGKILL)\n")


def test_the_shell_works_on_the_event_loop_of_the_server(tmp_path: Path) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        call = runner.run(ToolHarness(tmp_path).call("shell", command="sleep 50 & echo fine"))
    assert call.text == "fine\nexit code 0\n"


def test_a_command_runs_in_a_private_workspace(bench: ToolHarness) -> None:
    call = bench.shell("pwd -P; umask")
    umask = os.umask(0)
    os.umask(umask)
    assert call.text.splitlines()[:2] == [str(bench.workspace.resolve()), f"{umask:04o}"]
    assert bench.workspace.stat().st_mode & 0o777 == 0o700


def test_a_command_has_no_input_no_terminal_and_no_other_files(bench: ToolHarness) -> None:
    with (bench.folder / "secret").open("w"):
        call = bench.shell("cat; ls /dev/fd/; (: </dev/tty) 2>/dev/null && echo terminal")
    # `ls` opens the folder it lists: that is the one beyond the standard three.
    assert call.text.split("exit code")[0].split() == ["0", "1", "2", "3"]


def test_a_command_sees_no_secrets_in_its_environment(tmp_path: Path) -> None:
    names = """
        OPENAI_API_KEY HOLDFAST_TOKEN HOLDFAST_DATA GITHUB_TOKEN AWS_SESSION_TOKEN https_proxy DATABASE_URL
        BASH_ENV LD_PRELOAD PYTHONPATH SSH_AUTH_SOCK
    """
    planted = dict.fromkeys(names.split(), "s3cret")
    kept = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8", "LC_TIME": "C", "TZ": "UTC"}
    call = ToolHarness(tmp_path, planted | kept).shell("env; tr '\\0' '\\n' </proc/$PPID/environ")
    assert "s3cret" not in call.text
    seen = dict(line.split("=", 1) for line in call.text.splitlines() if "=" in line)
    assert seen.items() >= (kept | {"TERM": "dumb"}).items()
    assert set(seen) - set(kept) <= {"TERM", "PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"}


def test_a_command_starts_with_default_signal_handlers(bench: ToolHarness) -> None:
    """Neither what Python nor what the supervisor ignores is passed on."""
    call = bench.shell("sleep 5 & kill -HUP $!; wait $! 2>/dev/null; echo $?; yes | head -n 1")
    assert call.emitted("stdout") == "129\ny\nexit code 0\n"
    assert "Broken pipe" not in call.text
    if sys.platform == "linux":
        ignored = bench.shell("exec grep SigIgn /proc/self/status").text.split()[1]
        # 32 and 33 are the C library's own: no program can set them, and some start us with one ignored.
        assert int(ignored, 16) & ~(1 << 31 | 1 << 32) == 0


def test_output_arrives_before_the_end(bench: ToolHarness) -> None:
    async def read_early_output() -> RecordedCall:
        call = bench.prepare(command="echo early; until [ -e go ]; do sleep 0.01; done; echo late")
        running = asyncio.create_task(bench.tools["shell"].run(call.tool_run()))
        async with asyncio.timeout(30):
            while not call.pieces:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert call.text == "early\n"
        (bench.workspace / "go").touch()
        await running
        return call

    assert asyncio.run(read_early_output()).text == "early\nlate\nexit code 0\n"


def test_characters_split_across_writes_are_decoded_whole(bench: ToolHarness) -> None:
    call = bench.shell(
        r"printf 'h\xc3'; printf '\xe2\x82' >&2; sleep 0.1;"
        r"printf '\xa4h'; printf '\xac' >&2; printf '\xff\0!'"
    )
    assert call.emitted("stderr") == "€"
    assert call.emitted("stdout").startswith("häh\ufffd\ufffd!")


def test_long_output_keeps_its_beginning_and_its_end(bench: ToolHarness) -> None:
    call = bench.shell("echo BEGIN; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo END; exit 4")
    assert call.text.startswith("BEGIN\nxxx")
    assert call.text.endswith("xxx\nEND\nexit code 4\n")
    left_out = 9_000_000 + len("BEGIN\n\nEND\n") - SHELL_HEAD_BYTES_MAX - SHELL_TAIL_BYTES_MAX
    assert f"\n[{left_out:,} bytes were not kept]\n" in call.text
    assert len(call.text) < SHELL_HEAD_BYTES_MAX + SHELL_TAIL_BYTES_MAX + 100


def test_output_just_within_the_limit_is_whole(bench: ToolHarness) -> None:
    count = SHELL_HEAD_BYTES_MAX + SHELL_TAIL_BYTES_MAX
    call = bench.shell(f"head -c {count - 1} /dev/zero | tr '\\0' x; echo")
    assert call.text == "x" * (count - 1) + "\nexit code 0\n"


def test_long_output_is_not_cut_inside_a_character(bench: ToolHarness) -> None:
    call = bench.shell("yes äöü€ | head -n 1000000 | tr -d '\\n'")
    assert "\ufffd" not in call.text
    assert "bytes were not kept" in call.text


def test_a_command_that_takes_too_long_is_stopped(bench: ToolHarness) -> None:
    started = time.monotonic()
    call = bench.shell("echo begun; sleep 100", timeout_s=2)
    assert (call.outcome, call.text) == ("failed", "begun\nstopped at its time limit of 2 s\n")
    assert time.monotonic() - started < 30


def test_flooding_output_is_stopped_at_the_time_limit(bench: ToolHarness) -> None:
    call = bench.shell("trap '' TERM; yes", timeout_s=1)
    assert call.text.endswith("stopped at its time limit of 1 s\n")


def test_background_processes_end_with_the_command(bench: ToolHarness) -> None:
    call = bench.shell("for i in 1 2 3; do sleep 100 & echo $! >$i.pid; done; echo done")
    assert call.text == "done\nexit code 0\n"
    wait_for_exit(read_pids(bench.workspace, 3), within_s=0)


@linux_only
def test_daemons_end_with_the_command(bench: ToolHarness) -> None:
    write = 'echo $$ >$0.pid; trap "" TERM HUP; exec 0<&- 1>&- 2>&-; sleep 100'
    call = bench.shell(
        f"setsid sh -c '{write}' a & (setsid sh -c '{write}' b &) ; (nohup setsid -f sh -c '{write}' c &);"
        "until [ -s a.pid -a -s b.pid -a -s c.pid ]; do sleep 0.01; done"
    )
    assert call.text == "exit code 0\n"
    wait_for_exit(read_pids(bench.workspace, 3), within_s=0)


@linux_only
def test_a_fork_chain_is_killed(bench: ToolHarness) -> None:
    hydra = (
        "import os\n"
        "while True:\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
        "    os.close(os.open('trace', os.O_CREAT))\n"
    )
    call = bench.shell(f'{sys.executable} -I -S -c "{hydra}"; until [ -e trace ]; do sleep 0.01; done')
    assert call.text == "exit code 0\n"
    trace = bench.workspace / "trace"
    trace.unlink()
    time.sleep(0.2)
    assert not trace.exists()


def test_an_invalid_command_fails_the_call(bench: ToolHarness) -> None:
    assert "exit code 127\n" in bench.shell("no-such-program-here").text
    for command in ("a\0b", "x" * (SHELL_COMMAND_BYTES_MAX + 1)):
        call = bench.shell(command)
        assert (call.outcome, call.pieces) == ("failed", [])
        assert call.text == "a command holds no NUL and has at most 100,000 bytes"
    assert bench.shell(": " + "ä" * 49_999).outcome == "done"
    assert bench.shell("true", timeout_s=0).text == "arguments: `timeout_s` must be at least 1"
    assert bench.call_sync("shell").text == "arguments: `command` is missing"


def test_an_invalid_workspace_fails_the_call(bench: ToolHarness) -> None:
    bench.workspace.write_text("a file")
    call = bench.shell("true")
    assert call.outcome == "failed"
    assert call.text.startswith("the command could not be started")


def test_the_same_call_does_not_run_twice_at_once(bench: ToolHarness) -> None:
    async def twice() -> None:
        call, again = bench.prepare(command="echo 1 >a.pid; sleep 100"), bench.prepare(command="echo twice")
        again.id = call.id
        shell = bench.tools["shell"]
        first = asyncio.create_task(shell.run(call.tool_run()))
        await asyncio.to_thread(read_pids, bench.workspace, 1)
        assert not await shell.is_finished(call.id)
        assert (await shell.run(again.tool_run())).outcome == "failed"
        assert again.text == "not run: an earlier run of this call is still at work\n"
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await shell.is_finished(call.id)
        assert (await shell.run(again.tool_run())).outcome == "done"

    asyncio.run(twice())


def test_open_files_are_counted_without_connections(tmp_path: Path) -> None:
    """A server that many tests share may be called at any time, also while another test counts."""
    before = open_files()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
    ):
        assert open_files() == before
    with (tmp_path / "left").open("w"):
        assert open_files() == before + 1
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert open_files() == before + 2


def test_many_commands_run_concurrently(bench: ToolHarness) -> None:
    async def many() -> list[str]:
        commands = (f"sleep 0.1; echo {n}" for n in range(20))
        calls = await asyncio.gather(*(bench.call("shell", command=command) for command in commands))
        return [call.text for call in calls]

    assert asyncio.run(many()) == [f"{n}\nexit code 0\n" for n in range(20)]


def test_no_process_command_line_shows_the_command(bench: ToolHarness) -> None:
    """Those of the supervisor and of the shell: every process of the machine could read them."""
    looked = bench.shell(
        "for each in $PPID $$; do tr '\\0' ' ' </proc/$each/cmdline; echo; done;"
        " : WORDS-NOT-SHOWN; env | grep -c SHOWN"
    )
    lines = looked.text.splitlines()
    assert "supervisor" in lines[0] and "eval" in lines[1], looked.text
    assert "WORDS-NOT-SHOWN" not in looked.text
    assert "\n0" in looked.text, "nor does the command find itself in its environment"
