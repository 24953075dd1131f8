"""What `intruder.py` tries, and what a person is told where it is not refused."""

from pathlib import Path

INTRUDER = Path(__file__).parent / "intruder.py"
ANNOUNCED_BY = {
    "read the store": "read the data folder",
    "read what is not yet in the store": "read the data folder",
    "read the token": "read the data folder",
    "read every file": "read the data folder",
    "read another conversation's workspace": "read the data folder",
    "read through a symbolic link": "read the data folder",
    "read through a hard link": "read the data folder",
    "read by ..": "read the data folder",
    "read through the server's root": "memory of this server",
    "read through the server's folder": "memory of this server",
    "read the server's open files": "memory of this server",
    "read inherited files": "read the data folder",
    "read through the supervisor's root": "read the data folder",
    "uncover by unmounting": "read the data folder",
    "read the disk": "read a disk",
    "make a disk device": "read a disk",
    "change a kernel setting": "settings of the kernel",
    "write settings": "change the data folder",
    "write into the store": "change the data folder",
    "move the data folder": "change the data folder",
    "move the folder above": "change the data folder",
    "change rights": "change who may open them",
    "remove a file": "change the data folder",
    "read the environment": "memory of this server",
    "read the memory": "memory of this server",
    "read the memory from afar": "memory of this server",
    "trace": "memory of this server",
    "attach a debugger": "memory of this server",
    "signal the server": "stop this server",
    "signal the supervisor": "stop this server",
    "connect": "own port",
    "connect by another loopback address": "own port",
    "connect by no address": "own port",
    "connect by IPv6": "own port",
    "connect by MPTCP": "own port",
    "connect with the first byte": "own port",
    "connect from bash": "own port",
    "connect with curl": "own port",
    "pose as the server": "own port",
    "approve itself": "own port",
}
"""What a person is told when an attempt is not refused on this machine."""
HARMLESS = (
    "read the store", "read what is not yet in the store", "read the token", "read every file",
    "read another conversation's workspace", "read through a symbolic link", "read through a hard link",
    "read by ..", "signal the server", "signal the supervisor", "connect", "connect from bash",
    "pose as the server", "write into the store",
)  # fmt: skip
"""What can be tried on a server that goes on, and succeeds without walls."""
AS_ROOT = (
    "read through the server's root", "read through the server's folder", "read the environment",
    "read the memory", "read the memory from afar", "trace", "change a kernel setting",
)  # fmt: skip
"""What without walls only root can do to a server that is closed to others."""
