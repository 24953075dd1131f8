"""What files of a folder said when they were last right, kept beside them for a server that starts later.

It is a copy for times of need: it is read only where the file itself is wrong. Losing it loses nothing else.
"""

import os
from contextlib import suppress
from pathlib import Path

from holdfast.domain.limits import AGENT_FILE_BYTES_MAX
from holdfast.settings.edit import write_whole

FOLDER = ".last-good"
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class KeptCopies:
    """In a folder of the one that people write into. `writes`: this process keeps them level.

    Nothing here raises: where there is no copy, the file itself is all that is known.
    """

    def __init__(self, folder: Path, suffix: str, writes: bool) -> None:
        self._folder = folder / FOLDER
        self._suffix = suffix
        self._writes = writes

    def read(self, name: str) -> str | None:
        """What the file of that name said; None where that is not known."""
        try:
            with os.fdopen(os.open(self._path_of(name), _FILE), "rb") as file:
                body = file.read(AGENT_FILE_BYTES_MAX + 1)
            return body.decode("utf-8") if len(body) <= AGENT_FILE_BYTES_MAX else None
        except (OSError, UnicodeDecodeError):
            return None

    def keep(self, name: str, text: str) -> None:
        if not self._writes or self.read(name) == text:
            return
        with suppress(OSError, UnicodeEncodeError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            write_whole(self._path_of(name), text)

    def keep_only(self, names: list[str]) -> None:
        """Let go of those whose files are there no more."""
        if not self._writes:
            return
        with suppress(OSError):
            for found in list(self._folder.iterdir()):
                is_draft = found.name.startswith(".")  # Another process may be writing it.
                if not is_draft and found.name.removesuffix(self._suffix) not in names:
                    found.unlink()

    def _path_of(self, name: str) -> Path:
        return self._folder / f"{name}{self._suffix}"
