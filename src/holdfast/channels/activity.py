"""Summarise tool calls in one line: `Read 3 files, ran 2 commands`."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

_PHRASES: Mapping[str, tuple[str, str, str]] = MappingProxyType({
    "shell": ("ran", "a command", "commands"),
    "read_file": ("read", "a file", "files"),
    "write_file": ("wrote", "a file", "files"),
    "edit_file": ("changed", "a file", "files"),
    "list_files": ("looked into", "a folder", "folders"),
    "search_files": ("searched files", "", "times"),
    "fetch_url": ("read", "a page", "pages"),
    "web_search": ("searched the web", "", "times"),
    "remember": ("remembered", "something", "things"),
    "recall": ("recalled", "something", "things"),
})  # fmt: skip
_KINDS_MAX = 4


def activity_line(names: Counter[str]) -> str:
    """Return a summary of the most frequent finished calls, counted by tool name."""
    phrases = [_phrase(name, count) for name, count in names.most_common(_KINDS_MAX)]
    if len(names) > _KINDS_MAX:
        phrases.append("and more")
    line = ", ".join(phrases)
    return line[:1].upper() + line[1:]


def _phrase(name: str, count: int) -> str:
    verb, one, many = _PHRASES.get(name, (f"used {name}", "", "times"))
    if count == 1:
        return f"{verb} {one}".rstrip()
    return f"{verb} {count} {many}"
