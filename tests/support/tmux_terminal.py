"""A real terminal for tests: a program in tmux, with keys to press and a screen to read."""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VISIBLE_S_MAX = 60
_NUMBERS = itertools.count()


READY = r"· ready"
PROMPT = r"^> *$"


class Terminal:
    """A screen of 100 columns and 30 rows by default."""

    def __init__(self, environ: dict[str, str], folder: Path, columns: int = 100, rows: int = 30) -> None:
        assert shutil.which("tmux"), "tmux drives the terminal: install it (apt-get install tmux)"
        self._environ = environ | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        self._environ.pop("TMUX", None)
        self._folder = folder
        self._size = (str(columns), str(rows))
        self._name = f"holdfast-{os.getpid()}-{next(_NUMBERS)}"

    def start(self, *words: str) -> None:
        """Run `holdfast WORDS`; after its end the screen stays, with its exit code."""
        command = shlex.join([sys.executable, "-P", "-m", "holdfast", *words])
        columns, rows = self._size
        place = ("-x", columns, "-y", rows, "-c", str(self._folder))
        shown = shlex.quote(f"$ holdfast {shlex.join(words)}")
        shell = f"echo {shown}; {command}; echo exit code $?; exec sleep 600"
        self._tmux("new-session", "-d", *place, shell)
        self._tmux("set-option", "-g", "history-limit", "20000")

    def press(self, *keys: str) -> None:
        """Press keys by their names: Enter, C-c, Up, M-Enter."""
        self._tmux("send-keys", *keys)

    def type(self, text: str, enter: bool = True) -> None:
        self._tmux("send-keys", "-l", text)
        if enter:
            self.press("Enter")

    def paste(self, text: str) -> None:
        """Paste as a terminal does: bracketed, where the program enabled that."""
        self._tmux("set-buffer", text)
        self._tmux("paste-buffer", "-p")

    def screen(self, styled: bool = False) -> str:
        """Return the visible text."""
        return self._tmux("capture-pane", "-p", *(("-e",) if styled else ()))

    def full_output(self) -> str:
        """Return the visible text and everything that has scrolled away."""
        return self._tmux("capture-pane", "-p", "-S", "-")

    def title(self) -> str:
        return self._tmux("display-message", "-p", "#{pane_title}").strip()

    def wait_for_text(self, *wanted: str, gone: str = "", timeout_s: float = VISIBLE_S_MAX) -> str:
        """Return the screen once it matches every one of `wanted` (patterns), and `gone` no more."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            screen = self.screen()
            found = all(re.search(each, screen, re.MULTILINE) for each in wanted)
            if found and not (gone and re.search(gone, screen, re.MULTILINE)):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"{wanted} did not come up in:\n{self.full_output()}")

    def close(self) -> None:
        subprocess.run(
            ["tmux", "-L", self._name, "kill-server"], env=self._environ, capture_output=True, timeout=20
        )

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-u", "-L", self._name, "-f", "/dev/null", *words],
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def terminal(environ: dict[str, str], folder: Path, *words: str) -> Iterator[Terminal]:
    """Run `holdfast WORDS` in a terminal."""
    screen = Terminal(environ, folder)
    try:
        screen.start(*words)
        yield screen
    finally:
        screen.close()
