"""Measured processes: start, watch and stop them by their own handle."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TICKS = os.sysconf("SC_CLK_TCK")


class BenchProcess:
    """A process that prints its port, alone or at the end of a line, when it is ready."""

    def __init__(self, *words: str, env: Mapping[str, str] | None = None) -> None:
        started = time.monotonic()
        paths = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        self._popen = subprocess.Popen(
            [sys.executable, "-P", *words], stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, **paths, **(env or {})},
        )  # fmt: skip
        self.ready_line = ""
        """The line with the port; a server's line has the sign-in link."""
        self.port = self._read_port()
        self.ready_s = time.monotonic() - started

    def _read_port(self) -> int:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            last = line.partition("#")[0].strip().rstrip("/").rsplit(":", 1)[-1]
            if last.isdigit() and (line.strip().isdigit() or line.startswith("http")):
                self.ready_line = line.strip()
                return int(last)
        raise RuntimeError("the process ended before it was ready")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self._popen.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_kb(self) -> int:
        status = Path(f"/proc/{self._popen.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    def stop(self) -> None:
        self._popen.terminate()
        self._popen.wait()
        if self._popen.stdout is not None:
            self._popen.stdout.close()


@contextmanager
def running_process(*words: str, env: Mapping[str, str] | None = None) -> Iterator[BenchProcess]:
    process = BenchProcess(*words, env=env)
    try:
        yield process
    finally:
        process.stop()
