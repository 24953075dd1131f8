"""What is there, in one screen: the same facts for the terminal and for the page, in people's words."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from holdfast import __version__
from holdfast.domain.files import FileKind

READY = (
    "answers in the browser, the terminal, Telegram and over HTTP; runs tools when you allow it",
    "keeps every word on this disk, through kills and power cuts, and goes on by itself",
    "remembers from one conversation to the next; searches, undoes, branches, exports, backs up",
)
"""What this version can do."""
NOT_YET = ("be reached by an OpenAI-compatible client",)
"""What it cannot do yet, said before anyone finds out."""
COMMANDS = (
    ("holdfast link", "a fresh link to sign in with, each for one browser"),
    ("holdfast chat", "talk to it in the terminal"),
    ("holdfast doctor", "check everything that is stored"),
    ("holdfast backup FILE", "copy every conversation, while running"),
)
MAIN_ANSWERS = "answers where no other is chosen: agents/main.toml names it."
_UNITS = ("bytes", "kB", "MB", "GB", "TB")


Look = Callable[[], Awaitable["Overview"]]
"""Takes one look at everything; may raise a StoreFault."""


class Overview(msgspec.Struct, frozen=True):
    """The facts about one store at one moment."""

    data: Path
    durability: str
    sessions: int
    events: int
    store_bytes: int
    model: str = ""
    why: str = ""
    takes: tuple[FileKind, ...] = ()
    confinement: str = ""
    unprotected: tuple[str, ...] = ()
    """What of this server commands are not kept from, in sentences."""
    memory: str = ""
    """Who remembers."""
    problems: tuple[str, ...] = ()
    """What is wrong with agents and prompts that people wrote and with connections, in sentences."""
    main_model: str = ""
    """The model that answers where none was chosen, if `agents/main.toml` names another than the server's."""
    main_takes: tuple[FileKind, ...] = ()
    version: str = __version__

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Each fact as a label and a text."""
        return (
            ("Model", self.model),
            ("", self.why),
            *((("", f"{self.main_model} {MAIN_ANSWERS}"),) if self.main_model else ()),
            ("Memory", self.memory),
            ("Data folder", str(self.data)),
            (
                "Conversations",
                f"{self.sessions:,}; {self.events:,} events in {in_bytes(self.store_bytes)} on disk",
            ),
            ("Survives", "power loss" if self.durability == "full" else "a kill, not power loss"),
            ("Commands", f"confined by {self.confinement}" if self.is_confined else "not confined"),
            *(("Not protected", gap) for gap in self.unprotected),
            *(("Not usable", problem) for problem in self.problems),
        )

    @property
    def is_confined(self) -> bool:
        """Whether there are any walls around what tools start."""
        return self.confinement not in ("", "none")


def in_bytes(size: int) -> str:
    """A size as people read it: `1.2 MB`."""
    amount, unit = float(size), 0
    while amount >= 999.95 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{size} {_UNITS[0]}"
