"""Protect the process's memory and environment from other processes on this machine."""

import ctypes
import os
import re
import resource
import sys
from collections.abc import MutableMapping

from holdfast.domain.secrets import find_secrets

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL", re.IGNORECASE)
_PR_SET_DUMPABLE = 4


def harden(environ: MutableMapping[str, str]) -> dict[str, str]:
    """Remove secrets from the environment, disallow core dumps, and return the original environment.

    Call it before anything starts, with `os.environ`: the system shows other processes the memory block that
    a process started with, so a variable is wiped there before it is removed.
    """
    original = dict(environ)
    for name, value in original.items():
        if _SECRET_NAME.search(name) or any(find_secrets({name: value})):
            _wipe(name)
            del environ[name]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # Other processes of the same user may not attach to it or read its memory; it leaves no core file.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return original


def _wipe(name: str) -> None:
    find = ctypes.CDLL(None).getenv
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = find(os.fsencode(name))
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
