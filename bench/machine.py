"""Describe the machine and measure its other load: a figure from a busy machine proves nothing.

Contention flatters: it slows a peer that only waits for the disk as much as a store that also computes.
"""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import apsw

OTHERS_CORES_MAX = 0.25
"""Above this the verdicts are marked as doubtful."""
_STAT = Path("/proc/stat")


class OtherLoad:
    """Count the CPU time of other processes; `own_s` returns ours."""

    def __init__(self, own_s: Callable[[], float] = time.process_time) -> None:
        self._at = time.perf_counter()
        self._busy_s = _machine_cpu_s()
        self._spent_s = own_s
        self._own_s = own_s()
        self._cores: float | None = None

    def stop(self) -> None:
        """Stop measuring while our processes still run: once ended, they would count as others."""
        self._cores = self.cores()

    def cores(self) -> float:
        """Return how many cores other processes kept busy on average, since this was created."""
        if self._cores is not None:
            return self._cores
        elapsed = time.perf_counter() - self._at
        if self._busy_s is None:
            return os.getloadavg()[0]
        busy = (_machine_cpu_s() or 0.0) - self._busy_s
        return max(0.0, (busy - (self._spent_s() - self._own_s)) / elapsed)


def family_cpu_s() -> float:
    """Return the CPU seconds of this process and all its descendants, ended ones included."""
    parents: dict[int, int] = {}
    spent: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # The process has just ended.
        pid = int(path.parent.name)
        parents[pid], spent[pid] = int(fields[1]), sum(map(int, fields[11:15]))

    def is_ours(pid: int) -> bool:
        while pid > 1 and pid != os.getpid():
            pid = parents.get(pid, 0)
        return pid == os.getpid()

    return sum(ticks for pid, ticks in spent.items() if is_ours(pid)) / os.sysconf("SC_CLK_TCK")


def _machine_cpu_s() -> float | None:
    """Return the CPU seconds of all cores since the system's start; None if unknown."""
    if not _STAT.exists():
        return None
    user, nice, system, _, _, irq, softirq, *_ = (int(n) for n in _STAT.read_text().split()[1:11])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def describe_machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }
