"""Progress of long work, on standard error, where a person looks at it."""

import sys
from threading import Timer
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

SHOWN_AFTER_S = 0.3
"""Work that is done by then needs no bar."""


class Stopped(Exception):
    """Nobody waits for the work any more. Raised inside it, so that it ends at its next step."""


class Bar:
    """A progress bar that is a `ports.Progress`: any thread may call it."""

    def __init__(self, label: str, shown: bool) -> None:
        self._over = False
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not (shown and sys.stderr.isatty()),
        )
        self._begin = Timer(SHOWN_AFTER_S, self._bar.start)
        self._begin.daemon = True
        self._task = self._bar.add_task(label, total=None)

    def __enter__(self) -> "Bar":
        self._begin.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._over = True
        self._begin.cancel()
        self._begin.join()
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if self._over:
            raise Stopped
        self._bar.update(self._task, completed=done, total=max(total, 1))

    def say(self, label: str) -> None:
        """Other words for the same part of the work."""
        self._bar.update(self._task, description=label)

    def now(self, label: str) -> None:
        """Begin the next part of the work."""
        self._bar.reset(self._task, total=None, description=label)
