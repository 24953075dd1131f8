"""Which file systems are refused, from what Linux and macOS say is mounted where."""

from pathlib import Path

import pytest

from holdfast.domain.errors import NetworkFileSystem
from holdfast.store.sqlite.filesystem import refuse_network

LINUX = """\
22 28 0:21 / /proc rw,nosuid shared:12 - proc proc rw
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 28 0:44 / /mnt/share rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
31 28 0:45 / /mnt/my\\040share rw,relatime - cifs //server/share rw
32 28 0:46 / /mnt/B\u00fcro rw,relatime - fuse.sshfs me@host: rw
33 30 0:47 / /mnt/share/local rw,relatime - ext4 /dev/vdb rw
34 28 0:48 / /mnt/over rw - ext4 /dev/vdc rw
35 34 0:49 / /mnt/over rw - nfs server:/srv rw
36 28 0:50 / /mnt/tab\\011here rw - smb3 //s/t rw
"""
MACOS = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
devfs on /dev (devfs, local, nobrowse)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//me@server/share on /Volumes/share (smbfs, nodev, nosuid, mounted by me)
server:/export on /Volumes/my (odd) name (nfs, asynchronous)
//me@server/x on /Volumes/B\u00fcro (afpfs, nodev)
map auto_net on /System/Volumes/Data/net (autofs, automounted, nobrowse)
"""


@pytest.mark.parametrize(
    ("mounts", "folder", "kind"),
    [
        (LINUX, "/mnt/share", "nfs4"),
        (LINUX, "/mnt/share/deep/er", "nfs4"),
        (LINUX, "/mnt/my share/x", "cifs"),
        (LINUX, "/mnt/B\u00fcro/x", "fuse.sshfs"),
        (LINUX, "/mnt/over/x", "nfs"),
        (LINUX, "/mnt/tab\there", "smb3"),
        (MACOS, "/Volumes/share/x", "smbfs"),
        (MACOS, "/Volumes/my (odd) name/x", "nfs"),
        (MACOS, "/Volumes/B\u00fcro", "afpfs"),
    ],
)
def test_a_network_file_system_is_refused_by_name(mounts: str, folder: str, kind: str) -> None:
    with pytest.raises(NetworkFileSystem) as refused:
        refuse_network(Path(folder), mounts)
    assert refused.value.fields["kind"] == kind
    assert "--data" in refused.value.advice


@pytest.mark.parametrize(
    ("mounts", "folder"),
    [
        (LINUX, "/var/lib/holdfast"),
        (LINUX, "/mnt/share/local/x"),
        (LINUX, "/mnt/sharefoo"),
        (MACOS, "/Library/data"),
        (MACOS, "/Volumes/shared"),
        ("", "/anywhere"),
        ("nonsense\n\n - \n on (", "/anywhere"),
    ],
)
def test_a_local_disk_is_accepted(mounts: str, folder: str) -> None:
    refuse_network(Path(folder), mounts)


def test_this_machines_own_mounts_can_be_read(tmp_path: Path) -> None:
    refuse_network(tmp_path)
