"""Writer processes for tests: started, read and killed; and the acknowledgements of each."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from holdfast.domain.ids import RunId, SessionId
from tests.support.durability_checker import ExpectedChange

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60.0


class WriterLog:
    """The lines of one process."""

    def __init__(self) -> None:
        self.promises: dict[str, ExpectedChange] = {}
        self.deleting: set[SessionId] = set()
        self.leases: list[RunId] = []
        self.acks = 0
        self.exit: int | None = None
        self.is_open = False

    def add_line(self, line: str) -> None:
        verb, *words = line.split()
        match verb:
            case "try":
                session, _, events = words[1].split(":")
                promise = self.promises.setdefault(words[0], ExpectedChange({}))
                promise.members[SessionId(session)] = _list(events)
            case "ack":
                self.promises[words[0]] = _acknowledged(words[1:])
                self.acks += 1
            case "del":
                self.deleting.add(SessionId(words[0]))
            case "lease":
                self.leases.append(RunId(words[0]))
            case "open":
                self.is_open = True
            case "ended":
                self.exit = int(words[0])


def _acknowledged(words: Iterable[str]) -> ExpectedChange:
    promise = ExpectedChange({}, {}, 1)
    for word in words:
        session, first, events = word.split(":")
        promise.members[SessionId(session)] = _list(events)
        promise.first[SessionId(session)] = int(first)
    return promise


def _list(events: str) -> list[str]:
    return events.split(",") if events else []


class WriterProcess:
    """A running writer. A thread reads its output, so that it never blocks."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.log = WriterLog()
        self._log_changed = threading.Condition()
        self._errors = folder.with_name(f"{folder.name}.stderr")
        command = [sys.executable, "-m", "tests.crash.writer_process", str(folder), *map(str, arguments)]
        path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors,
                env={**os.environ, "PYTHONPATH": path},
            )  # fmt: skip
        self._reader_thread = threading.Thread(target=self._read_output, daemon=True)
        self._reader_thread.start()

    def wait_for_acks(self, count: int) -> None:
        """Return once it has `count` acknowledged changes, or has ended."""
        with self._log_changed:
            self._log_changed.wait_for(
                lambda: self.log.acks >= count or self._process.poll() is not None, TIMEOUT_S
            )

    def kill(self) -> None:
        """Send SIGKILL. Raise AssertionError when it had ended by itself."""
        self._process.kill()
        exit_code = self.wait()
        assert exit_code == -9, f"a writer ended by itself with {exit_code}:\n{self.errors}"

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave no process behind, however the test ended."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        exit_code = self._process.wait(TIMEOUT_S)
        self._reader_thread.join(TIMEOUT_S)
        return exit_code

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._log_changed:
                    if line.endswith(b"\n"):
                        self.on_line(line.decode())
                    self._log_changed.notify_all()
        with self._log_changed:
            self._log_changed.notify_all()

    def on_line(self, line: str) -> None:
        self.log.add_line(line)


class CrashingWriters(WriterProcess):
    """A process whose children die one by one, each with its own store; lines begin with its number."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.by_number: dict[int, WriterLog] = {}
        super().__init__(folder, *arguments)

    def on_line(self, line: str) -> None:
        number, _, rest = line.partition(" ")
        self.by_number.setdefault(int(number), WriterLog()).add_line(rest)
