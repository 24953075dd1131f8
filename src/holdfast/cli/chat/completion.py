"""Complete commands and prompts after a slash and files after an @, and read attached files."""

import errno
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from holdfast.cli.chat.safe_text import one_line
from holdfast.domain.limits import ATTACHMENTS_MAX
from holdfast.domain.slash import COMMANDS

COMPLETIONS_MAX = 50
SCANNED_ENTRIES_MAX = 2_000
_COMMAND = re.compile(r"/([a-z0-9_-]*)")
_AGENT = re.compile(r"/agent +([a-z0-9_-]*)")
_FILE = re.compile(r'(?:^|(?<=\s))@("[^"\n]*"|[^\s"]+)')
_PARTIAL_FILE = re.compile(r'(?:^|\s)@("[^"\n]*|[^\s"]*)$')
_UNQUOTED = re.compile(r'[^\s"]+')
_FILE_LIKE = re.compile(r"(?:~|\.{1,2})?/.+|.*[^/.]\.[A-Za-z][A-Za-z0-9]{0,4}")
"""Matches paths and names with a file extension, but not `@ada`, `@types/node` or `@app.command`."""
_TRAILING_PUNCTUATION = ".,;:!?)"
"""Characters that may follow a file name at the end of a sentence."""


class CompletionItem(msgspec.Struct, frozen=True):
    """A text that replaces the last `replaces` characters, with its label and its meaning."""

    text: str
    replaces: int
    label: str
    meaning: str = ""


class CompletionNames(msgspec.Struct, frozen=True):
    """The names of prompts and agents, each with its description."""

    prompts: tuple[tuple[str, str], ...] = ()
    agents: tuple[tuple[str, str], ...] = ()


_NO_NAMES = CompletionNames()


def find_completions(
    before: str, folder: Path, names: CompletionNames = _NO_NAMES
) -> Iterator[CompletionItem]:
    """Yield completions for the text before the cursor; file paths are relative to `folder`."""
    command = _COMMAND.fullmatch(before)
    if command is not None:
        for name, entry in COMMANDS.items():
            if name.startswith(command[1]):
                parameters = f" {entry.arguments}" if entry.arguments else ""
                yield CompletionItem(
                    f"/{name}" + (" " if parameters else ""),
                    len(before),
                    f"/{name}{parameters}",
                    entry.summary,
                )
        for prompt, about in names.prompts:
            if prompt.startswith(command[1]):
                yield CompletionItem(f"/{prompt} ", len(before), f"/{prompt}", one_line(about, 60))
        return
    agent = _AGENT.fullmatch(before)
    if agent is not None:
        for agent_name, about in names.agents:
            if agent_name.startswith(agent[1]):
                yield CompletionItem(agent_name, len(agent[1]), agent_name, one_line(about, 60))
        return
    partial_file = _PARTIAL_FILE.search(before)
    if partial_file is not None:
        yield from _complete_files(partial_file[1], folder)


def _complete_files(typed: str, folder: Path) -> Iterator[CompletionItem]:
    path = typed.removeprefix('"')
    parent, _, prefix = path.rpartition("/")
    parent_folder = folder / Path(parent + "/" if parent or path.startswith("/") else "").expanduser()
    found = sorted(_scan_folder(parent_folder, prefix), key=lambda entry: (not entry[1], entry[0].lower()))
    for name, is_folder in found[:COMPLETIONS_MAX]:
        full_path = f"{parent}/{name}" if "/" in path else name
        full_path += "/" if is_folder else ""
        text = full_path if _UNQUOTED.fullmatch(full_path) and not typed.startswith('"') else f'"{full_path}"'
        yield CompletionItem(text, len(typed), one_line(name, 60) + ("/" if is_folder else ""))


def _scan_folder(parent_folder: Path, prefix: str) -> Iterator[tuple[str, bool]]:
    """Yield the names that begin with `prefix`, and whether each is a folder; none if unreadable."""
    try:
        with os.scandir(parent_folder) as entries:
            for scanned, entry in enumerate(entries):
                if scanned >= SCANNED_ENTRIES_MAX:
                    return
                hidden = entry.name.startswith(".") and not prefix.startswith(".")
                odd = not entry.name.isprintable() or '"' in entry.name
                if entry.name.startswith(prefix) and not hidden and not odd:
                    yield entry.name, entry.is_dir()
    except OSError:
        return


class OutgoingFile(msgspec.Struct, frozen=True):
    """A file of a message: its name and content."""

    name: str
    content: bytes


class TooManyFiles(Exception):
    """More files than a message may have."""


def read_attachments(
    text: str, folder: Path, read: Callable[[Path], bytes] = Path.read_bytes
) -> list[OutgoingFile]:
    """Read the files that a message names after an @; ignore words that cannot be files.

    Raises OSError if a file is missing or cannot be read, and TooManyFiles.
    """
    found: dict[Path, OutgoingFile] = {}
    for named in _FILE.findall(text):
        path = folder / Path(named.strip('"')).expanduser()
        for candidate in (path, Path(str(path).rstrip(_TRAILING_PUNCTUATION))):
            if candidate.is_file():
                found.setdefault(candidate, OutgoingFile(candidate.name, b""))
                break
        else:
            _raise_if_missing_file(named, path)
    if len(found) > ATTACHMENTS_MAX:
        raise TooManyFiles
    return [OutgoingFile(file.name, read(path)) for path, file in found.items()]


def _raise_if_missing_file(named: str, path: Path) -> None:
    """Raise FileNotFoundError if `named` looks like a file."""
    shown = named.strip('"') if named.startswith('"') else named.rstrip(_TRAILING_PUNCTUATION)
    if not path.is_dir() and (named.startswith('"') or _FILE_LIKE.fullmatch(shown)):
        raise FileNotFoundError(errno.ENOENT, "there is no such file", shown)
