"""Attempts of a sandboxed command to attack the server that runs it. A program that prints `GOT` on success.

Arguments: the attempt, the data folder, the server's process id, its port, another conversation's id.
"""

import ctypes
import errno
import importlib.util
import json
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ATTEMPT, DATA, SERVER, PORT, OTHER = (
    sys.argv[1],
    Path(sys.argv[2]),
    int(sys.argv[3]),
    int(sys.argv[4]),
    sys.argv[5],
)
MPTCP, FASTOPEN = 262, 0x20000000
PTRACE_SEIZE = 0x4206


def content(path: str | Path) -> str:
    with Path(path).open("rb") as file:
        return f"{path}: {file.read(20)!r}"


def files() -> str:
    """Return every file of the store that can be opened."""
    return "; ".join(content(path) for path in sorted(DATA.iterdir()) if path.is_file())


def by_name(name: str) -> Callable[[], str]:
    return lambda: content(DATA / name)


def other_workspace() -> str:
    return content(DATA / "workspaces" / OTHER / "notes.txt")


def by_symlink() -> str:
    Path("link").unlink(missing_ok=True)
    Path("link").symlink_to(DATA)
    return content("link/holdfast.db")


def by_hard_link() -> str:
    os.link(DATA / "holdfast.db", "hard")
    return content("hard")


def by_dots() -> str:
    return content("../../holdfast.db")


def by_the_server() -> str:
    return content(f"/proc/{SERVER}/root{DATA}/holdfast.db")


def by_the_servers_folder() -> str:
    return str(list(Path(f"/proc/{SERVER}/cwd").iterdir()))


def by_open_files_of_the_server() -> str:
    return "; ".join(content(path) for path in Path(f"/proc/{SERVER}/fd").iterdir())


def by_inherited_files() -> str:
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(str(path.readlink()))
    return "; ".join(target for target in found if target.startswith(str(DATA)))


def supervisor() -> int:
    """Return the parent of the shell."""
    stat = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def by_the_supervisor() -> str:
    return content(f"/proc/{supervisor()}/root{DATA}/holdfast.db")


def by_unmounting() -> str:
    for words in (["umount", "-l", str(DATA)], ["unshare", "-Urm", "umount", "-l", str(DATA)]):
        subprocess.run(words, check=False, capture_output=True)
    command = ["nsenter", "-t", str(SERVER), "-m", "cat", str(DATA / "holdfast.db")]
    output = subprocess.run(command, check=False, capture_output=True).stdout
    return repr(output[:20]) if output else content(DATA / "holdfast.db")


def by_the_disk() -> str:
    found = []
    for disk in (path for path in Path("/dev").iterdir() if path.is_block_device()):
        with suppress(OSError):
            found.append(content(disk))
    return "; ".join(found)


def by_a_new_device() -> str:
    os.mknod("disk", 0o600 | 0o060000, Path("/").stat().st_dev)
    return content("disk")


def by_a_kernel_setting() -> str:
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return "core_pattern can be written"


def settings() -> str:
    (DATA / "holdfast.toml").write_text('approvals = "allow"\n')
    return "settings written"


def damage() -> str:
    with (DATA / "holdfast.db").open("r+b") as file:
        return f"opened for writing: {file.name}"


def move() -> str:
    DATA.rename(DATA.parent / "elsewhere").rename(DATA)
    return "renamed"


def move_above() -> str:
    DATA.parent.rename(DATA.parent.with_name("aside")).rename(DATA.parent)
    return "renamed"


def rights() -> str:
    (DATA / "holdfast.db").chmod(0o666)
    return "everyone may read and write it now"


def removal() -> str:
    (DATA / "format").unlink()
    return "removed"


def program() -> Path:
    """Return the folder of the package that the server runs."""
    found = importlib.util.find_spec("holdfast")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def changing_the_program() -> str:
    with (program() / "tools" / "files" / "search_program.py").open("r+b") as file:
        return f"opened for writing: {file.name}"


def adding_to(folder: Callable[[], Path]) -> Callable[[], str]:
    def attempt() -> str:
        planted = folder() / f"planted-{os.getpid()}"
        planted.touch()
        planted.unlink()
        return f"made {planted}"

    return attempt


def moving(folder: Callable[[], Path]) -> Callable[[], str]:
    def attempt() -> str:
        place = folder()
        place.rename(place.with_name("aside")).rename(place)
        return f"moved {place}"

    return attempt


def limits() -> str:
    resource.prlimit(SERVER, resource.RLIMIT_CPU, resource.prlimit(SERVER, resource.RLIMIT_CPU))
    return "set"


def priority() -> str:
    os.setpriority(os.PRIO_PROCESS, SERVER, os.getpriority(os.PRIO_PROCESS, SERVER))
    return "set"


def priority_by_user() -> str:
    os.setpriority(os.PRIO_USER, 0, os.getpriority(os.PRIO_USER, 0))
    return "set"


def processors() -> str:
    os.sched_setaffinity(SERVER, os.sched_getaffinity(SERVER))
    return "set"


def scheduling() -> str:
    os.sched_setscheduler(SERVER, os.sched_getscheduler(SERVER), os.sched_getparam(SERVER))
    return "set"


def parameters_of_scheduling() -> str:
    os.sched_setparam(SERVER, os.sched_getparam(SERVER))
    return "set"


def attributes_of_scheduling() -> str:
    attributes = ctypes.create_string_buffer(56)
    system_call("sched_getattr", SERVER, attributes, ctypes.c_uint(56), ctypes.c_uint(0))
    system_call("sched_setattr", SERVER, attributes, ctypes.c_uint(0))
    return "set"


def priority_of_reading_and_writing() -> str:
    system_call("ioprio_set", 1, SERVER, system_call("ioprio_get", 1, SERVER))
    return "set"


def system_call(name: str, *arguments: object) -> int:
    """Make a system call for which Python has no function."""
    numbers = {
        "x86_64": {"ioprio_set": 251, "ioprio_get": 252, "sched_setattr": 314, "sched_getattr": 315},
        "aarch64": {"ioprio_set": 30, "ioprio_get": 31, "sched_setattr": 274, "sched_getattr": 275},
    }
    libc = ctypes.CDLL(None, use_errno=True)
    result: int = libc.syscall(numbers[platform.machine()][name], *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def environment() -> str:
    return content(f"/proc/{SERVER}/environ")


def memory() -> str:
    os.close(os.open(f"/proc/{SERVER}/mem", os.O_RDONLY))
    return content(f"/proc/{SERVER}/maps")


def memory_from_afar() -> str:
    held = ctypes.create_string_buffer(8)
    here, there = (ctypes.c_size_t * 2)(ctypes.addressof(held), 8), (ctypes.c_size_t * 2)(0x400000, 8)
    libc = ctypes.CDLL(None, use_errno=True)
    # Whoever may look, but not at that address, is told EFAULT.
    if libc.process_vm_readv(SERVER, here, 1, there, 1, 0) < 0 and ctypes.get_errno() != errno.EFAULT:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return "read"


def tracing() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(PTRACE_SEIZE, SERVER, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    return "attached"


def debugger() -> str:
    words = ["gdb", "-batch", "-nx", "-p", str(SERVER), "-ex", "detach"]
    result = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    return result.stdout if "detached" in result.stdout else ""


def killing() -> str:
    os.kill(SERVER, 0)
    return "the server can be signalled"


def killing_the_supervisor() -> str:
    os.kill(supervisor(), signal.SIGCONT)
    return "the supervisor can be signalled"


def connecting(family: int, host: str, protocol: int = 0) -> Callable[[], str]:
    def attempt() -> str:
        with socket.socket(family, socket.SOCK_STREAM, protocol) as line:
            line.settimeout(2)
            line.connect((host, PORT))
            return "connected"

    return attempt


def fast_opening() -> str:
    with socket.socket() as line:
        line.sendto(b"GET /health/live HTTP/1.0\r\n\r\n", FASTOPEN, ("127.0.0.1", PORT))
        return repr(line.recv(20))


def bash_connecting() -> str:
    result = subprocess.run(
        ["bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{PORT} && echo in"], capture_output=True
    )
    return result.stdout.decode()


def curling() -> str:
    words = ["curl", "-s", "-m", "2", f"http://localhost:{PORT}/health/live"]
    return subprocess.run(words, capture_output=True, check=False).stdout.decode()


def posing() -> str:
    with socket.socket(socket.AF_INET6) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind(("::1", PORT))
        return "bound to the server's port"


def approving() -> str:
    """Approve a waiting call through the server's API, as the page would."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}/api/sessions", headers={"Accept": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return f"let in: {json.load(answer)}"


ATTEMPTS: dict[str, Callable[[], str]] = {
    "read the store": by_name("holdfast.db"),
    "read what is not yet in the store": by_name("holdfast.db-wal"),
    "read the token": by_name("token"),
    "read every file": files,
    "read another conversation's workspace": other_workspace,
    "read through a symbolic link": by_symlink,
    "read through a hard link": by_hard_link,
    "read by ..": by_dots,
    "read through the server's root": by_the_server,
    "read through the server's folder": by_the_servers_folder,
    "read the server's open files": by_open_files_of_the_server,
    "read inherited files": by_inherited_files,
    "read through the supervisor's root": by_the_supervisor,
    "uncover by unmounting": by_unmounting,
    "read the disk": by_the_disk,
    "make a disk device": by_a_new_device,
    "change a kernel setting": by_a_kernel_setting,
    "write settings": settings,
    "write into the store": damage,
    "move the data folder": move,
    "move the folder above": move_above,
    "change rights": rights,
    "remove a file": removal,
    "change the program": changing_the_program,
    "add to the program": adding_to(program),
    "add to the environment": adding_to(lambda: Path(sysconfig.get_path("purelib"))),
    "add to the interpreter": adding_to(lambda: Path(sysconfig.get_path("stdlib"))),
    "move the program": moving(program),
    "move the folder above the program": moving(lambda: program().parent),
    "change limits": limits,
    "change priority": priority,
    "change priority by user": priority_by_user,
    "change priority of reading and writing": priority_of_reading_and_writing,
    "change processors": processors,
    "change scheduling": scheduling,
    "change parameters of scheduling": parameters_of_scheduling,
    "change attributes of scheduling": attributes_of_scheduling,
    "read the environment": environment,
    "read the memory": memory,
    "read the memory from afar": memory_from_afar,
    "trace": tracing,
    "attach a debugger": debugger,
    "signal the server": killing,
    "signal the supervisor": killing_the_supervisor,
    "connect": connecting(socket.AF_INET, "127.0.0.1"),
    "connect by another loopback address": connecting(socket.AF_INET, "127.9.9.9"),
    "connect by no address": connecting(socket.AF_INET, "0.0.0.0"),
    "connect by IPv6": connecting(socket.AF_INET6, "::ffff:127.0.0.1"),
    "connect by MPTCP": connecting(socket.AF_INET, "127.0.0.1", MPTCP),
    "connect with the first byte": fast_opening,
    "connect from bash": bash_connecting,
    "connect with curl": curling,
    "pose as the server": posing,
    "approve itself": approving,
}

if __name__ == "__main__":
    try:
        got = ATTEMPTS[ATTEMPT]()
    except (OSError, subprocess.TimeoutExpired) as error:
        got, why = "", str(error)
    else:
        why = "nothing there"
    print(f"GOT {got}" if got else f"REFUSED {why}")
