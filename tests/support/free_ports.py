"""Reserve ports for servers that are named before they listen, or that restart.

Another process may take a port of the ephemeral range as soon as it is released: tests run side by side, and
each opens many. These ports are below that range, and each test process has a range of its own.
"""

import itertools
import os
import random
import socket

_FIRST, _STRETCH, _STRETCHES = 20_000, 1_500, 8
_PORT_COUNTER = itertools.count(random.randrange(_STRETCH))


def own_port() -> int:
    """Return a free port that is not used again before all others were."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    start = _FIRST + (int(worker) + 1 if worker else 0) % _STRETCHES * _STRETCH
    for count in itertools.islice(_PORT_COUNTER, _STRETCH):
        if is_free(start + count % _STRETCH):
            return start + count % _STRETCH
    raise AssertionError("no port is free")


def is_free(port: int) -> bool:
    """Return whether a test could listen at the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
