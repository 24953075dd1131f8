"""Another process that works over the same folder: watched, suspended, continued, killed."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.domain.ids import RunId, SessionId

ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """The other process, as the test sees it."""

    def __init__(self, folder: Path, story: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.contracts.run_worker_process", str(folder), story]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, bufsize=1)
        first, second = self._line().split()
        self.session_id, self.run_id = SessionId(first), RunId(second)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other process ended by itself"
        return line.strip()

    def wait_for_event(self, kind: str, times: int = 1) -> None:
        while times:
            times -= self._line() == kind

    def send(self, signum: signal.Signals) -> None:
        os.kill(self.process.pid, signum)

    def suspend(self) -> None:
        """Suspend it between two commits: a process that stops inside one blocks every other writer."""
        for _ in range(100):
            self.send(signal.SIGSTOP)
            time.sleep(0.02)
            if _is_free(self.folder / "write.lock"):
                return
            self.send(signal.SIGCONT)
            time.sleep(0.003)
        raise AssertionError("it is always inside a commit")

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def clean_up(self) -> None:
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _is_free(path: Path) -> bool:
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@contextmanager
def worker_process(folder: Path, story: str) -> Iterator[WorkerProcess]:
    other = WorkerProcess(folder, story)
    try:
        yield other
    finally:
        other.clean_up()
