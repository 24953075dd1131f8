"""A process that restores a backup and dies at one of the calls that change names in the data folder.

    python -m tests.crash.restoring_process DATA BACKUP TRIALS

For each N, `TRIALS/N` becomes a copy of the folder DATA. A child restores BACKUP there and kills itself:
before a call where N is odd, after it where it is even. Ends with the first N that the child outlives.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator
from holdfast.store.sqlite.restore import restore

CALLS = ("rename", "replace", "link", "symlink", "unlink", "mkdir", "rmdir", "fsync")


def die_at(number: int) -> None:
    """Have this process kill itself at a call."""
    calls = count(1)

    def fatal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nth = next(calls)
            if 2 * nth - 1 == number:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return real(*args, **options)
            finally:
                if 2 * nth == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in CALLS:
        setattr(os, name, fatal(getattr(os, name)))


def main(data: Path, backup: Path, trials: Path) -> None:
    for number in count(1):
        folder = trials / str(number)
        shutil.copytree(data, folder, symlinks=True)
        # What an earlier restore kept is named in the folder itself.
        path = folder / backup.relative_to(data) if backup.is_relative_to(data) else backup
        child = os.fork()
        if child == 0:
            process_id = IdGenerator(SystemClock()).process()
            die_at(number)
            restore(folder, path, process_id, lambda done, total: None)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != -signal.SIGKILL:
            sys.exit(ended)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
