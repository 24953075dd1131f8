"""Sandbox a command on Linux: restrict its process, and every process that it starts, for good.

Imports nothing from Holdfast and uses only the standard library: the supervisor applies it in the child that
is about to execute the command. It hides the data folder by one of two mechanisms. `mounts` mounts an empty
folder over it in a private mount namespace. `landlock` makes the kernel refuse to open anything in it.
Landlock rules can only allow, so they allow every sibling on the way down to the folder; a command cannot
list the folders on the way or create entries in them.

With both mechanisms the server's program, interpreter and environment are read-only: what a command wrote
there would run outside the sandbox.

With both mechanisms Landlock refuses to inspect or signal processes outside, to mount anything, and to
connect to the server's port or listen on it. Root loses its power over the kernel, and no command can open
disks as devices. A system call filter refuses to change limits, priority or processors of other processes.
"""

import ctypes
import os
import platform
import stat
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType

MOUNTS, LANDLOCK = "mounts", "landlock"

_LIBC = ctypes.CDLL(None, use_errno=True)

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH, _RULE_PORT = 1, 2
_EXECUTE, _WRITE, _READ, _READ_FOLDER = 1, 2, 4, 8
_MAKE_CHARACTER_DEVICE, _MAKE_BLOCK_DEVICE = 1 << 6, 1 << 11
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_RIGHTS_BY_ABI = (0, 13, 14, 15, 15)
"""The number of access rights that each version of Landlock knows; since the fifth it is 16."""
_BIND_AND_CONNECT, _NET_ABI = 3, 4
_SCOPES, _SCOPE_ABI = 3, 6  # Abstract sockets and signals.

_PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 22, 24, 38
_CAPABILITIES = 64
_KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 18, 29, 31})
"""Capabilities that root needs to manage files and users: chown, dac_override, fowner, fsetid, kill, setgid,
setuid, setpcap, net_bind_service, sys_chroot, audit_write, setfcap."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm", "mqueue", "fuse", "kvm",
            "net", "dri", "kfd", "snd")  # fmt: skip
_DEVICE_BEGINNINGS = ("nvidia", "video", "accel")

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_NOSUID, _NODEV, _NOEXEC, _READ_ONLY, _REMOUNT, _BIND, _REC, _SLAVE = 2, 4, 8, 1, 32, 4096, 16384, 1 << 19

_SYSTEM_CALLS = MappingProxyType({
    # The audit number of an architecture; its socket, sendto, sendmsg, sendmmsg; one to refuse always.
    "x86_64": ((0xC000003E, 41, 44, 46, 307, -1), (0x40000003, 359, 369, 370, 345, 102)),
    "aarch64": ((0xC00000B7, 198, 206, 211, 269, -1), (0x40000028, 281, 290, 296, 374, -1)),
    "riscv64": ((0xC00000F3, 198, 206, 211, 269, -1),),
})  # fmt: skip
_FORKS = MappingProxyType({
    # By the same audit number: fork, vfork, clone, clone3, unshare, as far as they exist.
    0xC000003E: (57, 58, 56, 435, 272),
    0x40000003: (2, 190, 120, 435, 310),
    0xC00000B7: (220, 435, 97),
    0x40000028: (2, 190, 120, 435, 337),
    0xC00000F3: (220, 435, 97),
})  # fmt: skip
_X32 = 0x40000000
"""Numbers from here on belong to the x32 ABI of x86_64, which nobody uses."""
_CALLS_ON_PROCESSES = MappingProxyType(
    {
        # By the same audit number: prlimit64, setpriority, ioprio_set; sched_setparam, sched_setscheduler,
        # sched_setaffinity, sched_setattr.
        0xC000003E: (302, 141, 251, (142, 144, 203, 314)),
        0x40000003: (340, 97, 289, (154, 156, 241, 351)),
        0xC00000B7: (261, 140, 30, (118, 119, 122, 274)),
        0x40000028: (369, 97, 314, (154, 156, 241, 380)),
        0xC00000F3: (261, 140, 30, (118, 119, 122, 274)),
    }
)
_PRIORITY_OF_USER, _IO_PRIORITY_OF_USER = 2, 3
"""Targets of a priority change that cover all processes of a user, including the server."""
_IO_URING_SETUP = 425
_X32_BIT = 0x40000000
_MPTCP, _SMC, _AF_SMC, _FASTOPEN = 262, 256, 43, 0x20000000
_EPERM, _ENOSYS, _EPROTONOSUPPORT = 1, 38, 93


def landlock_abi() -> int:
    """Return the version of Landlock on this machine, or 0 without it."""
    return max(0, int(_LIBC.syscall(_CREATE_RULESET, None, 0, 1))) if sys.platform == "linux" else 0


def create_port_ruleset(port: int) -> int:
    """Create a ruleset that allows every port but one, as an open file; -1 if Landlock has no port rules.

    It takes some 70 ms, so all commands share one. Raises OSError.
    """
    if landlock_abi() < _NET_ABI:
        return -1
    ruleset = _ruleset(0, _BIND_AND_CONNECT, 0)
    rule = ctypes.create_string_buffer(16)
    for allowed in range(1 << 16):
        if allowed != port:
            struct.pack_into("=QQ", rule, 0, _BIND_AND_CONNECT, allowed)
            _raise_on_error(_LIBC.syscall(_ADD_RULE, ruleset, _RULE_PORT, rule, 0))
    return ruleset


def folder_identity(path: str) -> str:
    """Return a folder's device and inode, which do not depend on its name. Raises OSError."""
    found = os.stat(path)  # noqa: PTH116
    return f"{found.st_dev}:{found.st_ino}"


def enter_sandbox(
    mechanism: str, port_ruleset: int, identity: str, workspace: str, hidden: list[str], read_only: list[str]
) -> None:
    """Sandbox this process for good. Raises OSError; the process may then be half sandboxed and must exit.

    `hidden` holds the paths of the one folder with `identity`. These, `read_only` and `workspace` contain no
    links. A workspace inside the hidden folder stays usable.
    """
    version, is_root = landlock_abi(), os.geteuid() == 0
    if any(folder_identity(folder) != identity for folder in hidden):
        raise OSError("the data folder is not where it was")
    if mechanism == LANDLOCK and version == 0:
        raise OSError("there is no Landlock here")
    read_only = [path for path in read_only if not any(_is_in(path, folder) for folder in hidden)]
    if mechanism == MOUNTS:
        _hide_by_mounts(hidden, read_only, workspace, is_root)
    elif os.path.realpath(workspace) != workspace:
        raise OSError(f"{workspace} has been moved")
    _drop_capabilities()
    _raise_on_error(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if version:
        _apply_landlock(mechanism, version, is_root, identity, workspace, hidden, read_only)
    if version and port_ruleset >= 0:
        _raise_on_error(_LIBC.syscall(_RESTRICT_SELF, port_ruleset, 0))
    _install_default_filter()


def restrict_to_reading(readable: list[str]) -> None:
    """Let this process only read the folders in `readable`, whose paths are resolved.

    It can no longer write, run a program, use the network or start another process. Open files stay open.
    Without Landlock it can still read and write files. Raises OSError.
    """
    version = landlock_abi()
    _raise_on_error(_LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if version:
        ruleset = _ruleset(
            _rights(version), _BIND_AND_CONNECT if version >= _NET_ABI else 0, _scopes(version)
        )
        for path in readable:
            _allow(ruleset, path, _READ | _READ_FOLDER)
        _raise_on_error(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
        os.close(ruleset)
    _install_default_filter()
    _install_filter(_no_sockets_or_forks_filter)


# Mounts.


def _hide_by_mounts(hidden: list[str], read_only: list[str], workspace: str, is_root: bool) -> None:
    """Mount an empty folder over each hidden one, and in it the workspace if it lies inside.

    Bind each `read_only` path to itself, read-only.
    """
    user, group = os.geteuid(), os.getegid()
    _raise_on_error(_LIBC.unshare(_NEWNS if is_root else _NEWNS | _NEWUSER))
    if not is_root:
        _write_text("/proc/self/setgroups", "deny")
        _write_text("/proc/self/uid_map", f"{user} {user} 1")
        _write_text("/proc/self/gid_map", f"{group} {group} 1")
    _mount("none", "/", "", _REC | _SLAVE)
    workspace_fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    if os.readlink(f"/proc/self/fd/{workspace_fd}") != workspace:  # noqa: PTH115
        raise OSError(f"{workspace} has been moved")
    for above in sorted({above for path in (*hidden, *read_only) for above in _parents(path)}):
        _mount(above, above, "", _BIND | _REC)  # A mount point cannot be renamed.
    for path in read_only:
        _mount(path, path, "", _BIND | _REC)
        # The kernel insists that a remount keeps the restrictions of the original mount.
        inherited_flags = os.statvfs(path).f_flag & (_NOSUID | _NODEV | _NOEXEC)
        _mount("none", path, "", _REMOUNT | _BIND | _READ_ONLY | inherited_flags)
    for folder in hidden:
        _mount("none", folder, "tmpfs", _NOSUID | _NODEV | _NOEXEC, "mode=0700,size=64k,nr_inodes=64")
    if any(_is_in(workspace, folder) for folder in hidden):
        os.makedirs(workspace, 0o700)  # noqa: PTH103
        _mount(f"/proc/self/fd/{workspace_fd}", workspace, "", _BIND)
    for folder in hidden:
        _mount("none", folder, "", _REMOUNT | _BIND | _READ_ONLY | _NOSUID | _NODEV | _NOEXEC)
    os.close(workspace_fd)


def _parents(path: str) -> list[str]:
    """Return the parent folders of `path` from the top, without the root."""
    names = path.strip("/").split("/")[:-1]
    return ["/" + "/".join(names[: count + 1]) for count in range(len(names))]


def _mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    words = (os.fsencode(word) for word in (source, target, kind))
    _raise_on_error(_LIBC.mount(*words, ctypes.c_ulong(flags), options.encode() or None))


def _write_text(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)


# Landlock.


def _apply_landlock(
    mechanism: str,
    version: int,
    is_root: bool,
    identity: str,
    workspace: str,
    hidden: list[str],
    read_only: list[str],
) -> None:
    handled = _rights(version)
    full = handled & ~(_MAKE_BLOCK_DEVICE | _MAKE_CHARACTER_DEVICE)
    ruleset = _ruleset(handled, 0, _scopes(version))
    limits = {"/dev": _READ_FOLDER}
    if is_root:  # Through these, root could make the kernel run programs outside the sandbox.
        limits |= {"/proc": _EXECUTE | _READ | _READ_FOLDER, "/sys": _EXECUTE | _READ | _READ_FOLDER}
    if mechanism == LANDLOCK:
        limits |= dict.fromkeys(hidden, 0) | dict.fromkeys(read_only, _EXECUTE | _READ | _READ_FOLDER)
    else:
        _allow(ruleset, "/", _READ_FOLDER)  # The mounts have hidden the data folder from listings already.
    _allow_except(ruleset, "/", full, limits, identity)
    for name in _list_dir("/dev"):
        if name in _DEVICES or name.startswith(_DEVICE_BEGINNINGS):
            _allow(ruleset, f"/dev/{name}", full)
    if mechanism == LANDLOCK and any(_is_in(workspace, folder) for folder in hidden):
        _allow(ruleset, workspace, full)
    _raise_on_error(_LIBC.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _rights(version: int) -> int:
    """Return every file access right that this version of Landlock knows."""
    return (1 << _RIGHTS_BY_ABI[version]) - 1 if version < len(_RIGHTS_BY_ABI) else (1 << 16) - 1


def _scopes(version: int) -> int:
    return _SCOPES if version >= _SCOPE_ABI else 0


def _allow_except(ruleset: int, path: str, rights: int, limits: dict[str, int], excluded: str) -> None:
    """Allow `rights` at `path`, reduced to the limits at or below it."""
    rights &= limits.get(path, rights)
    if not any(limited != path and _is_in(limited, path) for limited in limits):
        _allow(ruleset, path, rights, excluded)
    elif rights:
        for name in _list_dir(path):
            _allow_except(ruleset, f"{path.rstrip('/')}/{name}", rights, limits, excluded)


def _allow(ruleset: int, path: str, rights: int, excluded: str = "") -> None:
    """Add one rule, unless the path is gone or a link, which Landlock judges by its target."""
    if not rights:
        return
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        found = os.fstat(fd)
        if stat.S_ISLNK(found.st_mode) or f"{found.st_dev}:{found.st_ino}" == excluded:
            return
        rights &= -1 if stat.S_ISDIR(found.st_mode) else _ON_FILES
        if rights:
            rule = struct.pack("=Qi", rights, fd)
            # Some internal file systems accept no rules, and Landlock refuses nothing in them.
            with suppress(OSError):
                _raise_on_error(_LIBC.syscall(_ADD_RULE, ruleset, _RULE_PATH, rule, 0))
    finally:
        os.close(fd)


def _ruleset(paths: int, ports: int, scopes: int) -> int:
    fields = struct.pack("=QQQ", paths, ports, scopes)
    # Older versions know fewer fields and refuse a larger struct.
    size = 24 if landlock_abi() >= _SCOPE_ABI else 16 if landlock_abi() >= _NET_ABI else 8
    return _raise_on_error(_LIBC.syscall(_CREATE_RULESET, fields, ctypes.c_size_t(size), 0))


def _list_dir(path: str) -> list[str]:
    try:
        return os.listdir(path)  # noqa: PTH208
    except OSError:
        return []


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# Capabilities and system call filters.


def _drop_capabilities() -> None:
    """Drop all capabilities but the harmless ones."""
    for number in range(_CAPABILITIES):
        if number not in _KEPT_CAPABILITIES:
            _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header, now = struct.pack("=Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
    _raise_on_error(_LIBC.capget(header, now))
    kept = sum(1 << number for number in _KEPT_CAPABILITIES)
    masks = (kept & 0xFFFFFFFF, kept >> 32)
    fields = [field & masks[index // 3] for index, field in enumerate(struct.unpack("=6I", now.raw))]
    _raise_on_error(_LIBC.capset(header, struct.pack("=6I", *fields)))


def _install_default_filter() -> None:
    """Refuse system calls that Landlock has no rules for.

    MPTCP, SMC, fast open and io_uring would bypass its port rules. Others change limits, priority and
    processors of other processes.
    """
    _install_filter(_default_filter)


def _install_filter(filter_for: Callable[[int, int, int, int, int, int], bytes]) -> None:
    """Install the system call filter that `filter_for` builds for each architecture."""
    blocks = _SYSTEM_CALLS.get(platform.machine())
    if blocks is None:
        return
    program = b"".join(filter_for(*block) for block in blocks) + _bpf_instruction(0x06, 0x00050000 | _ENOSYS)
    buffer = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _raise_on_error(_LIBC.prctl(_PR_SET_SECCOMP, 2, filter_, 0, 0))


def _default_filter(audit: int, socket: int, sendto: int, sendmsg: int, sendmmsg: int, refused: int) -> bytes:
    """Build the filter for one architecture; for any other, control passes to the next instruction."""
    allow, no_call = _bpf_instruction(0x06, 0x7FFF0000), _bpf_instruction(0x06, 0x00050000 | _ENOSYS)
    no_protocol = _bpf_instruction(0x06, 0x00050000 | _EPROTONOSUPPORT)
    no_right = _bpf_instruction(0x06, 0x00050000 | _EPERM)

    def number() -> bytes:
        return _bpf_instruction(0x20, 0)

    def argument(index: int, is_high: bool = False) -> bytes:
        return _bpf_instruction(0x20, 16 + 8 * index + 4 * is_high)

    def if_equal(value: int, then: bytes) -> bytes:
        return _bpf_instruction(0x15, value & 0xFFFFFFFF, 0, len(then) // 8) + then

    def if_any(bits: int, then: bytes) -> bytes:
        return _bpf_instruction(0x45, bits, 0, len(then) // 8) + then

    new_socket = (
        argument(2) + if_equal(_MPTCP, no_protocol) + if_equal(_SMC, no_protocol)
        + argument(0) + if_equal(_AF_SMC, no_protocol) + allow
    )  # fmt: skip
    body = number()
    if audit == 0xC000003E:
        body += if_any(_X32_BIT, no_call)
    body += if_equal(socket, new_socket)
    for call, flags in ((sendto, 3), (sendmsg, 2), (sendmmsg, 3)):
        body += if_equal(call, argument(flags) + if_any(_FASTOPEN, no_protocol) + allow)
    limit, priority, io_priority, scheduling = _CALLS_ON_PROCESSES[audit]
    # 0 is the caller itself. Without new limits, prlimit only reads the old ones.
    itself = if_equal(0, allow)
    new_limits = argument(2) + if_any(0xFFFFFFFF, no_right) + argument(2, True) + if_any(0xFFFFFFFF, no_right)
    body += if_equal(limit, argument(0) + itself + new_limits + allow)
    for call, of_user in ((priority, _PRIORITY_OF_USER), (io_priority, _IO_PRIORITY_OF_USER)):
        body += if_equal(call, argument(0) + if_equal(of_user, no_right) + argument(1) + itself + no_right)
    for call in scheduling:
        body += if_equal(call, argument(0) + itself + no_right)
    body += if_equal(_IO_URING_SETUP, no_call)
    if refused >= 0:
        body += if_equal(refused, no_call)
    body += allow
    return _bpf_instruction(0x20, 4) + _bpf_instruction(0x15, audit, 0, len(body) // 8) + body


def _no_sockets_or_forks_filter(audit: int, socket: int, *_: int) -> bytes:
    """Build the filter for one architecture that refuses to create a socket or another process."""
    refused, allow = _bpf_instruction(0x06, 0x00050000 | _EPERM), _bpf_instruction(0x06, 0x7FFF0000)
    body = _bpf_instruction(0x20, 0) + _bpf_instruction(0x35, _X32, 0, 1) + refused
    for number in (socket, *_FORKS[audit]):
        body += _bpf_instruction(0x15, number, 0, 1) + refused
    body += allow
    return _bpf_instruction(0x20, 4) + _bpf_instruction(0x15, audit, 0, len(body) // 8) + body


def _bpf_instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, otherwise, value)


def _raise_on_error(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
