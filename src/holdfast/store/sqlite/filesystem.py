"""Refuse file systems whose locks and syncs cannot be trusted."""

import re
import subprocess
import sys
from pathlib import Path

from holdfast.domain.errors import NetworkFileSystem

_ESCAPED = re.compile(r"\\([0-7]{3})")
_NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "9p", "ceph", "glusterfs", "lustre", "afs",
    "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.cephfs", "beegfs", "ocfs2", "gfs2",
})  # fmt: skip


def refuse_network(folder: Path, mounts: str | None = None) -> None:
    """Raise NetworkFileSystem if `folder` is on one. `mounts` replaces the system's list of mounts."""
    table = _mounts(mounts if mounts is not None else _read_mounts())
    kind = _kind_of(folder.resolve(), table)
    if kind in _NETWORK:
        raise NetworkFileSystem(path=folder, kind=kind)


def is_mount_point(path: Path) -> bool:
    """Return whether something is mounted there, even a folder of the same disk."""
    return path.resolve() in _mounts(_read_mounts())


def _read_mounts() -> str:
    if sys.platform == "darwin":
        return subprocess.run(["/sbin/mount"], capture_output=True, text=True, check=False).stdout
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def _mounts(text: str) -> dict[Path, str]:
    """Return the file system of each mount point, from Linux's mountinfo or macOS's `mount`."""
    table: dict[Path, str] = {}
    for line in text.splitlines():
        fields = line.split()
        if " - " in line and len(fields) > 6:
            point = _ESCAPED.sub(lambda found: chr(int(found[1], 8)), fields[4])
            table[Path(point)] = line.split(" - ", 1)[1].split()[0]
        elif " on " in line and " (" in line:
            point, _, rest = line.split(" on ", 1)[1].rpartition(" (")
            table[Path(point)] = rest.split(",", 1)[0].rstrip(")")
    return table


def _kind_of(path: Path, table: dict[Path, str]) -> str:
    for parent in (path, *path.parents):
        if parent in table:
            return table[parent]
    return ""
