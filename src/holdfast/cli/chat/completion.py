"""What may be meant by what is being typed: commands and prompts after a slash, files after an @. Pure but
for looking at folders.
"""

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from holdfast.cli.chat.safe_text import one_line
from holdfast.domain.limits import ATTACHMENTS_MAX
from holdfast.domain.slash import COMMANDS

PROPOSED_MAX = 50
LOOKED_AT_MAX = 2_000
_COMMAND = re.compile(r"/([a-z0-9_-]*)")
_AGENT = re.compile(r"/agent +([a-z0-9_-]*)")
_FILE = re.compile(r'(?:^|(?<=\s))@("[^"\n]*"|[^\s"]+)')
_FILE_BEGUN = re.compile(r'(?:^|\s)@("[^"\n]*|[^\s"]*)$')
_PLAIN = re.compile(r'[^\s"]+')
_MEANS_A_FILE = re.compile(r"(?:~|\.{1,2})?/.+|.*[^/.]\.[A-Za-z][A-Za-z0-9]{0,4}")
"""What is a path, or ends as files do: not `@ada`, nor `@types/node`, nor `@app.command`."""
_BEHIND = ".,;:!?)"
"""A word at the end of a sentence has its full stop behind it."""


class Proposal(msgspec.Struct, frozen=True):
    """Text to put in place of the last `replaces` characters, how it is listed, and what it means."""

    text: str
    replaces: int
    shown: str
    meaning: str = ""


class Known(msgspec.Struct, frozen=True):
    """What people have written that can be named, each with what is said of it."""

    prompts: tuple[tuple[str, str], ...] = ()
    agents: tuple[tuple[str, str], ...] = ()


_NOTHING = Known()


def proposals(before: str, folder: Path, known: Known = _NOTHING) -> Iterator[Proposal]:
    """What may come for the text before the cursor. Files are looked for from `folder` on."""
    command = _COMMAND.fullmatch(before)
    if command is not None:
        for name, each in COMMANDS.items():
            if name.startswith(command[1]):
                takes = f" {each.takes}" if each.takes else ""
                yield Proposal(f"/{name}" + (" " if takes else ""), len(before), f"/{name}{takes}", each.does)
        for prompt, about in known.prompts:
            if prompt.startswith(command[1]):
                yield Proposal(f"/{prompt} ", len(before), f"/{prompt}", one_line(about, 60))
        return
    agent = _AGENT.fullmatch(before)
    if agent is not None:
        for who, about in known.agents:
            if who.startswith(agent[1]):
                yield Proposal(who, len(agent[1]), who, one_line(about, 60))
        return
    begun = _FILE_BEGUN.search(before)
    if begun is not None:
        yield from _files(begun[1], folder)


def _files(typed: str, folder: Path) -> Iterator[Proposal]:
    path = typed.removeprefix('"')
    above, _, beginning = path.rpartition("/")
    where = folder / Path(above + "/" if above or path.startswith("/") else "").expanduser()
    found = sorted(_entries(where, beginning), key=lambda each: (not each[1], each[0].lower()))
    for name, is_folder in found[:PROPOSED_MAX]:
        whole = f"{above}/{name}" if "/" in path else name
        whole += "/" if is_folder else ""
        text = whole if _PLAIN.fullmatch(whole) and not typed.startswith('"') else f'"{whole}"'
        yield Proposal(text, len(typed), one_line(name, 60) + ("/" if is_folder else ""))


def _entries(where: Path, beginning: str) -> Iterator[tuple[str, bool]]:
    """Names that begin so, and whether each is a folder. What cannot be looked into has none."""
    try:
        with os.scandir(where) as entries:
            for looked_at, entry in enumerate(entries):
                if looked_at >= LOOKED_AT_MAX:
                    return
                hidden = entry.name.startswith(".") and not beginning.startswith(".")
                odd = not entry.name.isprintable() or '"' in entry.name
                if entry.name.startswith(beginning) and not hidden and not odd:
                    yield entry.name, entry.is_dir()
    except OSError:
        return


class Attached(msgspec.Struct, frozen=True):
    """A file of a message: what it is called, and what it holds."""

    name: str
    content: bytes


class TooMany(Exception):
    """More files than a message may have."""


def attached(text: str, folder: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> list[Attached]:
    """The files that a message names after an @, read now. Where no file can be meant it is only a word.

    Raises OSError for a file that cannot be read or is not there, and TooMany.
    """
    found: dict[Path, Attached] = {}
    for named in _FILE.findall(text):
        path = folder / Path(named.strip('"')).expanduser()
        for candidate in (path, Path(str(path).rstrip(_BEHIND))):
            if candidate.is_file():
                found.setdefault(candidate, Attached(candidate.name, b""))
                break
        else:
            _check_is_a_word(named, path)
    if len(found) > ATTACHMENTS_MAX:
        raise TooMany
    return [Attached(each.name, read(path)) for path, each in found.items()]


def _check_is_a_word(named: str, path: Path) -> None:
    """Raises FileNotFoundError for what was meant to be a file."""
    shown = named.strip('"') if named.startswith('"') else named.rstrip(_BEHIND)
    if not path.is_dir() and (named.startswith('"') or _MEANS_A_FILE.fullmatch(shown)):
        raise FileNotFoundError(errno.ENOENT, "there is no such file", shown)
