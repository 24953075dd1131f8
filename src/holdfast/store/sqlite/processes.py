"""Which processes are alive: each holds a lock on a file of its own; a lock that is free means dead,
whatever pid, container or clock say."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from holdfast.domain.ids import ProcessId


class ProcessLock:
    """This process's sign of life, and a look at the others'."""

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
            # One that looked between the two calls took us for dead, and the name may be gone.
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
        """The other processes that are alive now; the files of dead ones are removed."""
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
        """Give the sign of life up; a second time does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            # Where nothing can be written any more the name stays, and the next to come in clears it away.
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            os.close(file)
