"""Summarise the server's state in one screen: the same facts for the terminal and the page."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from holdfast import __version__
from holdfast.domain.files import NO_FILES, SupportedFiles

COMMANDS = (
    ("holdfast chat", "talk to it in the terminal"),
    ("holdfast link", "print a new sign-in link"),
    ("holdfast doctor", "check the stored data"),
    ("holdfast backup FILE", "back up every conversation"),
)
MAIN_MODEL_NOTE = "answers where no other is chosen: agents/main.toml names it."
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


GetServerStatus = Callable[[], Awaitable["ServerStatus"]]
"""Read the current status; may raise a StoreFault."""


class ServerStatus(msgspec.Struct, frozen=True):
    """The state of one store at one moment."""

    data: Path
    durability: str
    sessions: int
    events: int
    store_bytes: int
    model: str = ""
    why: str = ""
    takes: SupportedFiles = NO_FILES
    confinement: str = ""
    unprotected: tuple[str, ...] = ()
    """Gaps in the sandbox of commands, in sentences."""
    memory: str = ""
    """The name of the memory provider."""
    problems: tuple[str, ...] = ()
    """Problems of agent files, prompt files and connections, in sentences."""
    main_model: str = ""
    """The model of `agents/main.toml`, if it is another than the server's."""
    main_takes: SupportedFiles = NO_FILES
    version: str = __version__

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Return each fact as a label and a text."""
        return (
            ("Model", self.model),
            ("", self.why),
            *((("", f"{self.main_model} {MAIN_MODEL_NOTE}"),) if self.main_model else ()),
            ("Memory", self.memory),
            ("Data folder", str(self.data)),
            (
                "Conversations",
                f"{self.sessions:,}, {format_bytes(self.store_bytes)} on disk"
                if self.sessions
                else "none yet",
            ),
            *((("Durability", "survives a kill, not power loss"),) if self.durability != "full" else ()),
            ("Commands", "sandboxed" if self.is_sandboxed else "not sandboxed"),
            *(("Not protected", gap) for gap in self.unprotected),
            *(("Not usable", problem) for problem in self.problems),
        )

    @property
    def is_sandboxed(self) -> bool:
        """Return whether tools start commands in a sandbox."""
        return self.confinement not in ("", "none")


def format_bytes(size: int) -> str:
    """Return a size as people read it: `1.2 MB`."""
    amount, unit = float(size), 0
    while amount >= 999.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{size} {_UNITS[0]}"
