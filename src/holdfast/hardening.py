"""Closing the process itself: what it knows is not for others on this machine to read."""

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
    """Take secrets out of the process's environment, and shut its memory. Returns the environment as it was.

    To be called before anything is started, with `os.environ`: the system shows others the block of memory
    that a process was started with, so a variable is wiped there before it is removed.
    """
    original = dict(environ)
    for name, value in original.items():
        if _SECRET_NAME.search(name) or any(find_secrets({name: value})):
            _wipe(name)
            del environ[name]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        # No other process of the same user may attach to it or look into it; nor does it leave a core file.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    return original


def _wipe(name: str) -> None:
    find = ctypes.CDLL(None).getenv
    find.argtypes, find.restype = [ctypes.c_char_p], ctypes.c_void_p
    address = find(os.fsencode(name))
    if address:
        ctypes.memset(address, 0, len(ctypes.string_at(address)))
