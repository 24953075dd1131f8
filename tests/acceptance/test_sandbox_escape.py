"""From inside the agent's shell, against the server that runs it: each attempt fails or is announced."""

import asyncio
import os
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.acceptance.conftest import RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client
from tests.support.sandbox_escape_attempts import ANNOUNCED_BY, AS_ROOT, HARMLESS, INTRUDER
from tests.support.tool_fixture import read_pids, wait_for_exit

SECRET = "sk-planted-secret-of-the-server"


@pytest.fixture(scope="module")
def guarded(
    speaker: ScriptedModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server that runs every command at once, with a key in the environment that it was started with."""
    home = tmp_path_factory.mktemp("home")
    more = {"HOLDFAST_APPROVALS": "allow", "OPENAI_API_KEY": SECRET}
    with cli_in(home, **environ_for(speaker), **more) as command:
        yield command.serve("--port", "0")


@asynccontextmanager
async def session_client(guarded: RunningServer) -> AsyncIterator[tuple[ApiClient, str]]:
    async with api_client(guarded.address) as api:
        yield api, await api.create_session()


async def run(api: ApiClient, session: str, command: str) -> str:
    """What a command in the agent's shell says."""
    receipt = await api.send(session, f"run {command}")
    await api.wait_for_run(receipt["run_id"])
    reply = [words for role, _, words in await api.message_texts(session) if role == "assistant"][-1]
    return reply.removeprefix("It said: ")


async def create_session(guarded: RunningServer) -> str:
    async with api_client(guarded.address) as api:
        return await api.create_session()


async def unprotected_features(api: ApiClient) -> list[str]:
    found: list[str] = (await api.get("/health/ready"))["unprotected"]
    return found


@pytest.mark.parametrize("attempt", ANNOUNCED_BY)
async def test_an_attempt_from_the_shell_fails_or_is_announced(guarded: RunningServer, attempt: str) -> None:
    async with session_client(guarded) as (api, session):
        other = await api.create_session()
        notes = guarded.folder / "workspaces" / other / "notes.txt"
        notes.parent.mkdir(parents=True)
        notes.write_text("somebody's")
        words = (sys.executable, INTRUDER, attempt, guarded.folder, guarded.process.pid, guarded.port, other)
        output = await run(api, session, shlex.join(map(str, words)))
        assert output.startswith(("GOT ", "REFUSED ")), output
        assert SECRET not in output
        print(f"{attempt}: {output.splitlines()[0]}")
        gaps = await unprotected_features(api)
        assert output.startswith("REFUSED ") or any(ANNOUNCED_BY[attempt] in gap for gap in gaps), output
        assert (await api.get("/health/live")) == {"status": "live"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are no walls")
def test_without_the_sandbox_the_attempts_succeed(guarded: RunningServer, runner: asyncio.Runner) -> None:
    """So that a refusal means something. The server itself refuses to be looked into by all but root."""
    session = runner.run(create_session(guarded))
    workspace = guarded.folder / "workspaces" / session
    workspace.mkdir(parents=True)
    (workspace / "notes.txt").write_text("somebody's")
    got = {}
    for attempt in (*HARMLESS, *AS_ROOT):
        words = (
            sys.executable,
            INTRUDER,
            attempt,
            guarded.folder,
            guarded.process.pid,
            guarded.port,
            session,
        )
        result = subprocess.run(
            list(map(str, words)), cwd=workspace, capture_output=True, text=True, timeout=60
        )
        got[attempt] = result.stdout.startswith("GOT ")
    is_root = os.geteuid() == 0
    assert got == dict.fromkeys(HARMLESS, True) | dict.fromkeys(AS_ROOT, is_root)


async def test_nothing_outlives_a_cancel(guarded: RunningServer) -> None:
    stubborn = 'trap "" TERM HUP INT; echo $$ >$0.pid; while true; do sleep 100; done'
    family = (
        f"setsid -f sh -c '{stubborn}' session; (nohup setsid sh -c '{stubborn}' daemon >/dev/null 2>&1 &);"
        f"sh -c '{stubborn}' child"
    )
    async with session_client(guarded) as (api, session):
        receipt = await api.send(session, f"run {family}")
        pids = read_pids(guarded.folder / "workspaces" / session, 3)
        await api.post(f"/api/runs/{receipt['run_id']}/cancel")
        await api.wait_for_run(receipt["run_id"], "cancelled")
        wait_for_exit(pids, within_s=30)


async def test_sandbox_gaps_are_reported_at_startup_and_by_health(guarded: RunningServer) -> None:
    async with api_client(guarded.address) as api:
        ready = await api.get("/health/ready")
    assert ready["status"] == "ready"
    screen = " ".join(line.strip("│ ") for line in guarded.output_lines)
    squeezed = "".join(screen.split())
    assert ("sandboxed" if ready["confinement"] != "none" else "not sandboxed") in screen
    for gap in ready["unprotected"]:
        assert "".join(gap.split()) in squeezed.replace("Notprotected", "")
    if sys.platform == "linux" and os.geteuid() == 0:
        assert any("Running as root" in gap for gap in ready["unprotected"])
    print(ready)


async def test_an_approval_request_names_the_sandbox_gaps(
    speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        asking = await asyncio.to_thread(command.serve, "--port", "0")
        async with api_client(asking.address) as api:
            session = await api.create_session()
            await api.send(session, "run true")
            frames = await api.events_through(session, 0, "approval_requested")
            gaps = await unprotected_features(api)
    assert all(gap in frames[-1].data["reason"] for gap in gaps)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_environment_of_the_server_shows_no_key(guarded: RunningServer) -> None:
    """Also not to someone who may read it: the value is gone from where the system looks."""
    shown = Path(f"/proc/{guarded.process.pid}/environ").read_bytes()
    assert SECRET.encode() not in shown
    assert b"HOLDFAST_MODEL=" in shown


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("git init -q r && cd r && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
         " && git log --oneline | wc -l", "1"),
        ("python3 -c 'import tempfile, sqlite3; sqlite3.connect(\"a.db\").execute(\"create table t (x)\");"
         " print(tempfile.TemporaryFile().write(b\"abc\"))'", "3"),
        ("mkdir -p $HOME/existing/new && echo there >$HOME/existing/new/file && cat $HOME/existing/new/file",
         "there"),
        ("cat <(echo substituted) && echo out >/dev/stdout && echo quiet >/dev/null", "substituted\nout"),
        ("echo x | tee a b >/dev/null && ln a c && mv b d && cat c d | wc -l && rm -rf a c d", "2"),
        ("sleep 0.05 & wait; kill -0 $$ && ps -o pid= -p $$ | wc -l", "1"),
        ("ulimit -n 100 && nice -n 5 python3 -c 'import os, resource;"
         " os.sched_setaffinity(0, os.sched_getaffinity(0));"
         " print(os.nice(0), resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)[0])'", "5 100"),
        ("head -c 200000 /dev/zero | tr '\\0' x | wc -c; ls /tmp >/dev/null; exit 3", "200000\nexit code 3"),
    ],
)  # fmt: skip
async def test_ordinary_commands_work_in_the_sandbox(
    guarded: RunningServer, command: str, expected: str
) -> None:
    (guarded.folder.parent.parent / "existing").mkdir(exist_ok=True)
    async with session_client(guarded) as (api, session):
        said = await run(api, session, command)
        assert said.removesuffix("exit code 0").strip() == expected


async def test_other_ports_can_be_connected_to_and_listened_on(
    guarded: RunningServer, speaker: ScriptedModelServer
) -> None:
    port = int(speaker.url.rpartition(":")[2].partition("/")[0])
    listen = (
        "import socket as s; a = s.create_server(('', 0)); s.create_connection(a.getsockname()); print(1)"
    )
    async with session_client(guarded) as (api, session):
        command = f'exec 3<>/dev/tcp/127.0.0.1/{port} && echo in; python3 -c "{listen}"'
        assert (await run(api, session, command)).startswith("in\n1")


async def test_a_workspace_in_the_data_folder_is_refused(guarded: RunningServer) -> None:
    async with session_client(guarded) as (api, session):
        await run(api, session, "true")
        for inside in (
            guarded.folder,
            guarded.folder / "workspaces" / session,
            guarded.folder / "workspaces",
        ):
            problem = await api.post("/api/sessions", {"workspace": str(inside)})
            assert (api.status, problem["code"]) == (400, "bad_request")
            await api.request("PATCH", f"/api/sessions/{session}", {"workspace": str(inside)})
            assert api.status == 400


async def test_a_workspace_around_the_data_folder_does_not_open_it(guarded: RunningServer) -> None:
    async with api_client(guarded.address) as api:
        session = await api.create_session(workspace=str(guarded.folder.parent.parent))
        output = await run(
            api, session, "pwd; cat share/holdfast/token share/holdfast/holdfast.db; ls share/holdfast"
        )
        assert output.startswith(str(guarded.folder.parent.parent.resolve()))
        assert guarded.token not in output
        assert "holdfast.db-wal" not in output
        assert "SQLite" not in output
