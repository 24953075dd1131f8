"""Find out which processes are alive.

Each process locks a file of its own. A free lock means that the process is dead, whatever pid, container or
clock say.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from holdfast.domain.ids import ProcessId


class ProcessLock:
    """The lock of this process, and checks of the others' locks."""

    def __init__(self, folder: Path, process_id: ProcessId) -> None:
        self._folder = folder / "processes"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self.process_id = process_id
        self._path = self._folder / f"{process_id}.lock"
        self._file = self._acquire()

    def _acquire(self) -> int:
        while True:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(file, fcntl.LOCK_EX)
            # Another process may have checked between the two calls, found no lock, and removed the file.
            if os.fstat(file).st_nlink:
                return file
            os.close(file)

    def is_alive(self, process_id: ProcessId) -> bool:
        if process_id == self.process_id:
            return True
        try:
            file = os.open(self._folder / f"{process_id}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def living_others(self) -> list[ProcessId]:
        """Return the other living processes; remove the files of dead ones."""
        alive = []
        for path in sorted(self._folder.glob("*.lock")):
            process_id = ProcessId(path.stem)
            if process_id == self.process_id:
                continue
            if self.is_alive(process_id):
                alive.append(process_id)
            else:
                path.unlink(missing_ok=True)
        return alive

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            # On a full or read-only disk the file stays, and the next process to open the store removes it.
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(file)
