"""The walls around commands: both ways to put them up, what they refuse, and that what they miss is told."""

import asyncio
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.ids import SessionId
from holdfast.engine.workspaces import workspace_path
from holdfast.tools.sandbox import linux_sandbox
from holdfast.tools.sandbox.linux_sandbox import (
    LANDLOCK,
    MOUNTS,
    create_port_ruleset,
    folder_identity,
    landlock_abi,
)
from holdfast.tools.sandbox.sandbox import NO_SANDBOX, Sandbox, all_paths_of, detect_sandbox, program_paths
from tests.support.sandbox_escape_attempts import ANNOUNCED_BY, INTRUDER
from tests.support.tool_fixture import ToolHarness, read_pids, wait_for_exit

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or landlock_abi() < 6, reason="needs Landlock's scopes"
)

TOOLS = Path(linux_sandbox.__file__).parent
OWN, OTHER = SessionId("s_0000000000000001"), SessionId("s_0000000000000002")
SECRET = "the secret of the store"
PASSES_LANDLOCK_ALONE = {"change rights"}


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    """Stands for the server's port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture(scope="module")
def ports(listener: socket.socket) -> Iterator[int]:
    ruleset = create_port_ruleset(listener.getsockname()[1])
    yield ruleset
    os.close(ruleset)


def create_data_folder(folder: Path) -> Path:
    """A data folder with something to lose in it."""
    store = folder / "share" / "holdfast"
    for name in ("holdfast.db", "holdfast.db-wal", "token", "format", f"workspaces/{OTHER}/notes.txt"):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_text(SECRET)
    return store


@pytest.fixture(params=[MOUNTS, LANDLOCK])
def walled(request: pytest.FixtureRequest, tmp_path: Path, ports: int) -> ToolHarness:
    store = create_data_folder(tmp_path.resolve())
    read_only = tuple(map(str, program_paths()))
    walls = Sandbox(request.param, ports, folder_identity(str(store)), all_paths_of(store), read_only)
    bench = ToolHarness(tmp_path, None, walls, store)
    bench.workspace = workspace_path(store, OWN, "")
    return bench


@pytest.mark.parametrize("attempt", ANNOUNCED_BY)
def test_each_sandbox_mechanism_blocks_the_escape(
    walled: ToolHarness, listener: socket.socket, attempt: str
) -> None:
    port = listener.getsockname()[1]
    words = (sys.executable, INTRUDER, attempt, walled.store, os.getpid(), port, OTHER)
    output = walled.shell(shlex.join(map(str, words))).text
    passes = walled.sandbox.mechanism == LANDLOCK and attempt in PASSES_LANDLOCK_ALONE
    assert output.startswith("GOT " if passes else "REFUSED "), output


def test_a_command_works_in_its_own_workspace_and_sees_no_other(walled: ToolHarness) -> None:
    call = walled.shell("mkdir a; echo x >a/b; mv a/b c; cat c; pwd; cd ..; ls; cat */notes.txt")
    assert call.text.startswith(f"x\n{walled.workspace}\n")
    assert SECRET not in call.text
    assert OTHER not in call.text
    assert (walled.workspace / "c").read_text() == "x\n"


def test_a_workspace_around_the_data_folder_does_not_open_it(walled: ToolHarness) -> None:
    walled.workspace = walled.folder
    call = walled.shell(
        "cat share/holdfast/*; cat share/holdfast/token; echo x >new || echo none; ls share/holdfast"
    )
    assert SECRET not in call.text
    assert "holdfast.db" not in call.text
    # The one thing that Landlock alone costs: no new names on the way to the data folder.
    assert (walled.folder / "new").exists() == (walled.sandbox.mechanism == MOUNTS)


def test_a_data_folder_inside_the_program_folder_stays_hidden(walled: ToolHarness) -> None:
    around = walled.store.parent
    (around / "module.py").write_text("pass")
    bench = ToolHarness(walled.folder, None, walled.sandbox._replace(read_only=(str(around),)), walled.store)
    bench.workspace = walled.workspace
    call = bench.shell(
        f"cat {walled.store}/token; cat {around}/module.py; echo x >{around}/module.py || echo refused"
    )
    assert SECRET not in call.text
    assert "pass" in call.text and "refused" in call.text
    assert (around / "module.py").read_text() == "pass"


def test_program_paths_cover_imported_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = tmp_path.resolve() / "home" / "packages"
    packages.mkdir(parents=True)
    module = types.ModuleType("own_module")
    module.__file__ = str(packages / "own_module.py")
    monkeypatch.setitem(sys.modules, "own_module", module)
    monkeypatch.setattr(sys, "path", [str(packages.parent), str(packages)[:-1], str(packages), *sys.path])
    assert packages in program_paths() and packages.parent not in program_paths()


def test_a_workspace_outside_the_data_folder_is_unrestricted(walled: ToolHarness) -> None:
    walled.workspace = walled.folder / "elsewhere"
    call = walled.shell(
        f"echo x >a; cat a; cat {walled.store}/token; cat {walled.store}/workspaces/{OTHER}/notes.txt"
    )
    assert call.text.startswith("x\n")
    assert SECRET not in call.text


@pytest.mark.parametrize("chosen", ["", "workspaces", f"workspaces/{OTHER}/..", "link"])
def test_a_workspace_inside_the_data_folder_is_refused_by_every_tool(
    walled: ToolHarness, chosen: str
) -> None:
    (walled.folder / "link").symlink_to(walled.store / "workspaces" / OTHER)
    walled.workspace = walled.folder / "link" if chosen == "link" else walled.store / chosen
    for call in (
        walled.shell("cat token notes.txt"),
        walled.call_sync("list_files"),
        walled.call_sync("read_file", path="token"),
        walled.call_sync("write_file", path="token", content="planted"),
    ):
        assert call.outcome == "failed"
        assert "the server's own folder" in call.text
    assert (walled.store / "token").read_text() == SECRET


def test_file_tools_do_not_enter_a_data_folder_inside_the_workspace(walled: ToolHarness) -> None:
    walled.workspace = walled.folder
    (walled.folder / "link").symlink_to("share/holdfast")
    for place in ("share/holdfast", "link", "share/../share/holdfast", f"share/holdfast/workspaces/{OTHER}"):
        for call in (
            walled.call_sync("read_file", path=f"{place}/token"),
            walled.call_sync("write_file", path=f"{place}/planted", content="x"),
            walled.call_sync("list_files", path=place),
        ):
            assert (call.outcome, SECRET in call.text) == ("failed", False)
    assert "token" not in walled.call_sync("list_files", depth=10).text
    assert not (walled.store / "planted").exists()
    moved = walled.store.rename(walled.folder / "moved")
    create_data_folder(walled.folder)
    assert walled.call_sync("read_file", path="moved/token").outcome == "failed"
    assert (moved / "token").read_text() == SECRET


def test_a_moved_data_folder_stops_all_commands(walled: ToolHarness) -> None:
    walled.shell("true")
    walled.store.rename(walled.folder / "moved")
    create_data_folder(walled.folder)
    call = walled.shell(f"cat {walled.folder}/moved/token; echo ran")
    assert (call.outcome, "ran" in call.text, SECRET in call.text) == ("failed", False, False)
    assert "not where it was" in call.text


def test_a_workspace_swapped_for_a_link_does_not_let_a_command_in(walled: ToolHarness) -> None:
    """However the swap falls: the command runs where it was to run, or not at all."""
    place, aside = walled.folder / "place", walled.folder / "aside"
    place.mkdir()
    (place / "notes.txt").write_text("mine")
    walled.workspace = place
    swap = f"while true; do mv {place} {aside}; ln -s {walled.store}/workspaces/{OTHER} {place};" \
           f" rm {place}; mv {aside} {place}; done"  # fmt: skip
    with subprocess.Popen(["bash", "-c", swap], stderr=subprocess.DEVNULL) as swapping:
        try:
            outputs = [walled.shell("cat notes.txt; cat .; true") for _ in range(40)]
        finally:
            swapping.kill()
    escapes = [call for call in outputs if SECRET in call.text]
    print(
        f"{len(outputs)} commands, {sum('mine' in call.text for call in outputs)} ran, {len(escapes)} escapes"
    )
    assert not escapes


def test_a_command_cannot_end_its_supervisor(walled: ToolHarness) -> None:
    call = walled.shell("kill -KILL $PPID; echo $?")
    assert call.emitted("stdout") == "1\nexit code 0\n"


def test_cancelling_ends_all_sandboxed_processes(walled: ToolHarness) -> None:
    stubborn = 'trap "" TERM HUP INT; echo $$ >$0.pid; while true; do sleep 100; done'
    family = f"setsid -f sh -c '{stubborn}' a; (setsid sh -c '{stubborn}' b &); sh -c '{stubborn}' c"

    async def cancelled() -> list[int]:
        call = walled.prepare(command=family)
        running = asyncio.create_task(walled.tools["shell"].run(call.tool_run()))
        pids = await asyncio.to_thread(read_pids, walled.workspace, 3)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await walled.tools["shell"].is_finished(call.id)
        return pids

    wait_for_exit(asyncio.run(cancelled()), within_s=0)


def test_a_command_has_no_capabilities_and_no_inherited_files(walled: ToolHarness) -> None:
    call = walled.shell(
        "ls /dev/fd/; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status; cat /proc/self/status | grep CapEff"
    )
    numbers = call.text.split("NoNewPrivs")[0].split()
    assert numbers == ["0", "1", "2", "3"]
    assert "NoNewPrivs:\t1\nSeccomp:\t2\n" in call.text
    powers = int(call.text.split("CapEff:")[1].split()[0], 16)
    assert powers & (1 << 2 | 1 << 13 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 21 | 1 << 27) == 0


def test_a_working_sandbox_is_detected_by_probing(tmp_path: Path, listener: socket.socket) -> None:
    found = detect_sandbox(create_data_folder(tmp_path), "127.0.0.1", listener.getsockname()[1])
    try:
        assert found.sandbox.mechanism in (MOUNTS, LANDLOCK)
        assert found.description.endswith(f"landlock {landlock_abi()}")
        gaps = " ".join(found.gaps)
        kept_out = ("the data folder", "own port", "memory", "stop this server", "disk", "kernel")
        for kept in (*kept_out, "own program", "limits"):
            assert kept not in gaps
        assert ("Running as root" in gaps) == (os.geteuid() == 0)
    finally:
        os.close(found.sandbox.port_ruleset)


def test_without_a_sandbox_each_gap_is_reported(tmp_path: Path, listener: socket.socket) -> None:
    """As on a kernel without them: the same attempts, and nothing in their way."""
    found = detect_sandbox(
        create_data_folder(tmp_path), "127.0.0.1", listener.getsockname()[1], mechanisms=()
    )
    assert found[:2] == (NO_SANDBOX, "none")
    gaps = " ".join(found.gaps)
    lost_all = ("read the data folder", "change the data folder", "own port", "stop this server")
    for lost in (*lost_all, "own program", "limits"):
        assert lost in gaps


PROBE = (
    "import sys; sys.path.append(sys.argv.pop(1)); import linux_sandbox as walls, sandbox_probe;"
    "sys.argv[6] = str(walls.create_port_ruleset(int(sys.argv[3]))); sandbox_probe.main(walls.enter_sandbox)"
)
ENCLOSED = (
    "import runpy, sys; tools, way, identity, store = sys.argv[1:5]; del sys.argv[1:5];"
    "sys.path.append(tools); import linux_sandbox as walls;"
    "walls.enter_sandbox(way, -1, identity, '/', [store], [tools]) if way else None;"
    "runpy.run_path(tools + '/sandbox_escape.py', run_name='__main__')"
)
ON_PROCESSES = [attempt for attempt, gap in ANNOUNCED_BY.items() if gap == "limits, priority"]


class UnprivilegedUser:
    """A user who is not root, their data folder and a copy of the tools, and a process that they run."""

    def __init__(self, folder: Path, python: str, server: int) -> None:
        self.store, self.tools, self.server = create_data_folder(folder), folder / "tools", server
        self._python = python
        shutil.copytree(TOOLS, self.tools, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(INTRUDER, self.tools)
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(folder)], check=True)

    def run(self, script: str, *words: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*BECOME, self._python, "-I", "-S", "-c", script, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
        )


USER = 12_345
BECOME = ("setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups")


@pytest.fixture
def ordinary() -> Iterator[UnprivilegedUser]:
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if os.geteuid() != 0 or python is None or not shutil.which("setpriv"):
        pytest.skip("needs root, a Python that everyone may run, and setpriv")
    folder = Path(f"/var/tmp/holdfast-test-{os.getpid()}-{time.monotonic_ns()}")
    with subprocess.Popen([*BECOME, "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None and server.stdout.readline(), "it has become the user"
            yield UnprivilegedUser(folder, python, server.pid)
        finally:
            server.kill()
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(("way", "passed"), [(MOUNTS, []), (LANDLOCK, ["rights"])])
def test_the_sandbox_holds_for_an_unprivileged_user(
    ordinary: UnprivilegedUser, listener: socket.socket, way: str, passed: list[str]
) -> None:
    store, port = ordinary.store, listener.getsockname()[1]
    result = ordinary.run(
        PROBE, ordinary.tools, store, "127.0.0.1", port, ordinary.server, way, "0",
        folder_identity(str(store)), store, "", ordinary.tools,
    )  # fmt: skip
    if result.returncode == 3 and way == MOUNTS:
        pytest.skip("ordinary users may not mount here")
    assert (result.returncode, result.stdout.split("\n")) == (0, [*(passed or [""]), ""]), result


@pytest.mark.parametrize("way", [MOUNTS, LANDLOCK, ""])
def test_a_command_cannot_change_other_processes_of_its_user(ordinary: UnprivilegedUser, way: str) -> None:
    """Without walls it does: root is kept from it in other ways too, an ordinary user is not."""
    store = ordinary.store
    for attempt in ON_PROCESSES:
        words = (attempt, store, ordinary.server, 1, OTHER)
        result = ordinary.run(ENCLOSED, ordinary.tools, way, folder_identity(str(store)), store, *words)
        if "Error" in result.stderr and way == MOUNTS:
            pytest.skip("ordinary users may not mount here")
        assert result.stdout.startswith("REFUSED [Errno 1]" if way else "GOT "), (attempt, result)


def test_a_further_mount_of_the_disk_is_found(tmp_path: Path) -> None:
    store = create_data_folder(tmp_path.resolve())
    again = tmp_path.resolve() / "with a space"
    again.mkdir()
    listing = (
        "import sys; from pathlib import Path; from holdfast.tools.sandbox.sandbox import all_paths_of;"
        "print(*all_paths_of(Path(sys.argv[1])), sep='\\n')"
    )
    script = f'mount --bind {shlex.quote(str(store.parent))} {shlex.quote(str(again))} && exec "$@"'
    words = ["unshare", "-Urm", "sh", "-c", script, "sh", sys.executable, "-c", listing, str(store)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "unshare" in result.stderr or "mount:" in result.stderr:
        pytest.skip("nothing can be mounted here")
    assert result.stdout.splitlines() == [str(store), str(again / "holdfast")], result


def test_secrets_are_removed_from_the_environment_and_proc() -> None:
    script = (
        "import os; from pathlib import Path; from holdfast.hardening import harden\n"
        "known = harden(os.environ)\n"
        "print(known['OPENAI_API_KEY'], known['DATABASE_URL'], sep='\\n')\n"
        "print(b'planted' in Path('/proc/self/environ').read_bytes(), os.environ.get('OPENAI_API_KEY'))\n"
        "print(os.popen('env').read().count('planted'), os.environ['PLAIN'])\n"
        "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))\n"
        "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"
    )
    names = (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "GITHUB_TOKEN",
        "MY_SECRET",
        "DB_PASSWORD",
        "AWS_CREDENTIALS",
    )
    planted = dict.fromkeys(names, "planted-value") | {"DATABASE_URL": "postgresql://me:planted-pw@host/db"}
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | planted | {"PLAIN": "kept"},
        capture_output=True,
        text=True,
    )
    assert result.stdout.splitlines() == [
        "planted-value", planted["DATABASE_URL"], "False None", "0 kept", "(0, 0)", "0",
    ], result  # fmt: skip
