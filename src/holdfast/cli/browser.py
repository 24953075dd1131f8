"""Opening the page in a browser, where there is a screen to see it on."""

import html
import os
import sys
import threading
import webbrowser
from pathlib import Path

NAME = "open.html"
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def open_page(link: str, folder: Path) -> None:
    """Open `link` without waiting for it.

    By way of a file that only its owner can read: a program's arguments, and with them the code in the
    link, can be read by every user of the machine.
    """
    if sys.platform != "darwin" and not any(os.environ.get(name) for name in _DISPLAYS):
        return
    path = folder / NAME
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(
            '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
            f'<meta http-equiv="refresh" content="0; url={html.escape(link)}"><title>Holdfast</title>'
        )
    threading.Thread(target=webbrowser.open, args=(path.as_uri(),), daemon=True).start()
