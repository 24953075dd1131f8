"""What the machine is, and how much of it others used meanwhile: a figure from a busy machine proves nothing.

Contention flatters: it slows a peer that only waits for the disk as much as a store that also computes.
"""

import os
import platform
import time
from pathlib import Path

import apsw

OTHERS_CORES_MAX = 0.25
"""Above this the verdicts are marked as doubtful."""
_STAT = Path("/proc/stat")


class Bystanders:
    """Counts the processor time that was not ours."""

    def __init__(self) -> None:
        self._at = time.perf_counter()
        self._busy_s = _busy_s()
        self._own_s = time.process_time()

    def cores(self) -> float:
        """How many cores others kept busy on average, since this was made."""
        elapsed = time.perf_counter() - self._at
        if self._busy_s is None:
            return os.getloadavg()[0]
        busy = (_busy_s() or 0.0) - self._busy_s
        return max(0.0, (busy - (time.process_time() - self._own_s)) / elapsed)


def _busy_s() -> float | None:
    """Seconds that all cores together were busy since the start of the system; None where nobody says."""
    if not _STAT.exists():
        return None
    user, nice, system, _, _, irq, softirq, *_ = (int(n) for n in _STAT.read_text().split()[1:11])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def described() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }
