"""Show the progress of long work on standard error, if that is a terminal."""

import sys
from threading import Timer
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

SHOW_AFTER_S = 0.3
"""Shorter work shows no bar."""


class WorkCancelled(Exception):
    """Raised inside the work after its bar is closed, so that it ends at its next step."""


class ProgressBar:
    """A progress bar that implements `ports.Progress`; any thread may call it."""

    def __init__(self, label: str, shown: bool) -> None:
        self._is_closed = False
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not (shown and sys.stderr.isatty()),
        )
        self._start_timer = Timer(SHOW_AFTER_S, self._bar.start)
        self._start_timer.daemon = True
        self._task = self._bar.add_task(label, total=None)

    def __enter__(self) -> "ProgressBar":
        self._start_timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._is_closed = True
        self._start_timer.cancel()
        self._start_timer.join()
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        if self._is_closed:
            raise WorkCancelled
        self._bar.update(self._task, completed=done, total=max(total, 1))

    def set_label(self, label: str) -> None:
        """Change the label of the current phase."""
        self._bar.update(self._task, description=label)

    def start_phase(self, label: str) -> None:
        """Start the next phase of the work."""
        self._bar.reset(self._task, total=None, description=label)
