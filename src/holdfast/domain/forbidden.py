"""Commands that are never run, looked for wherever a command may hide in another.

A guard against accidents, not a wall: it sees through what people and models write without thinking (`sudo`,
`&&`, `sh -c`, substitutions, loops), and errs on the side of finding something. Whoever wants to get past it
can. What runs anyway is kept in bounds by other means.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, pairwise, takewhile
from types import MappingProxyType

import msgspec

from holdfast.domain.commands import command_of
from holdfast.domain.limits import SHELL_COMMAND_BYTES_MAX
from holdfast.domain.shell_text import ANY, Command, Word, commands_in

_DEPTH_MAX = 8
_FOUND_MAX = 1_000
"""Commands inside one command that are looked at."""
_KNOWN_MAX = 64
_KEYWORDS = frozenset({"!", "{", "}", "if", "then", "else", "elif", "while", "until", "do", "time", "coproc"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_FUNCTION = re.compile(r"(?<![\w:.])([\w:.]++)\(\)")
_BLANKS = re.compile(r"\s+")
_SLASHES = re.compile(r"/+")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash"})
_LONG = MappingProxyType({"--recursive": "r", "--force": "f"})
_THROUGH: Mapping[str, tuple[str, int]] = MappingProxyType({
    "sudo": ("ugpCDhrtTUR", 0), "doas": ("uC", 0), "env": ("uC", 0), "nice": ("n", 0), "ionice": ("cnp", 0),
    "nohup": ("", 0), "setsid": ("", 0), "stdbuf": ("ioe", 0), "timeout": ("ks", 1), "time": ("fo", 0),
    "command": ("", 0), "builtin": ("", 0), "exec": ("a", 0), "xargs": ("InLPdEas", 0), "watch": ("n", 0),
    "chroot": ("", 1), "busybox": ("", 0), "systemd-run": ("pu", 0), "strace": ("oepP", 0),
    "unshare": ("", 0), "flock": ("wE", 1), "chrt": ("", 1), "taskset": ("", 1), "runuser": ("ugG", 0),
    "pkexec": ("", 0),
})  # fmt: skip
"""What runs the rest of its words: its options that take a word, and how many words come before the rest."""


class _Pattern(msgspec.Struct, frozen=True):
    """What is looked for. `more`: any further words may follow. What is no single command is only text."""

    text: str
    program: re.Pattern[str] | None = None
    options: frozenset[str] = frozenset()
    operands: tuple[re.Pattern[str], ...] = ()
    writes: tuple[re.Pattern[str], ...] = ()
    more: bool = False


class _Found(msgspec.Struct, frozen=True):
    """A command as it is compared."""

    program: str
    options: frozenset[str]
    operands: tuple[str, ...]
    writes: tuple[str, ...]


class Forbidden:
    """The commands of a list, each as people write them; within a word `*` stands for any part of a name."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_pattern(text) for text in patterns]
        # A call is looked at each time that something is decided about its run.
        self._known: dict[str, str] = {}

    def in_call(self, tool: str, arguments: str) -> str:
        """The pattern that a call falls under; empty if it may run."""
        command = command_of(tool, arguments)
        if command is None:
            return ""
        if command not in self._known:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[command] = self.in_command(command)
        return self._known[command]

    def in_command(self, command: str) -> str:
        """The first pattern that is found anywhere in `command`; empty if none is."""
        if len(command) > SHELL_COMMAND_BYTES_MAX:
            return ""  # The tool refuses it.
        found = [_found(each) for each in islice(_all_in(command, 0), _FOUND_MAX)]
        squeezed = _squeezed(command)
        for pattern in self._patterns:
            if pattern.program is None and not pattern.writes:
                if _squeezed(pattern.text) in squeezed:
                    return pattern.text
            elif any(_matches(pattern, each) for each in found):
                return pattern.text
        return ""


def _pattern(text: str) -> _Pattern:
    found = commands_in(text)
    if len(found) != 1 or not (found[0].words or found[0].writes):
        return _Pattern(text)
    words, writes = found[0].words, list(found[0].writes)
    more = bool(words) and words[-1].wildcard == ANY
    words = words[:-1] if more else words
    program = _regex(words[0], posixpath.basename) if words else None
    rest = [word.text for word in words[1:]]
    operands = tuple(_regex(word, _normal) for word in words[1:] if not word.text.startswith("-"))
    return _Pattern(
        text, program, _options(rest), operands, tuple(_regex(w, _normal) for w in writes), more or not words
    )


def _regex(word: Word, normal: Callable[[str], str]) -> re.Pattern[str]:
    return re.compile(re.escape(normal(word.text)) if word.is_plain else word.wildcard)


def _found(command: Command) -> _Found:
    words = [word.text for word in command.words]
    return _Found(
        posixpath.basename(words[0]) if words else "",
        _options(words[1:]),
        tuple(_normal(text) for text in _operands(words[1:])),
        tuple(_normal(word.text) for word in command.writes),
    )


def _matches(pattern: _Pattern, command: _Found) -> bool:
    if not all(any(wanted.fullmatch(text) for text in command.writes) for wanted in pattern.writes):
        return False
    if pattern.program is None:
        return bool(pattern.writes)
    if not pattern.program.fullmatch(command.program) or not pattern.options <= command.options:
        return False
    named = all(any(wanted.fullmatch(text) for text in command.operands) for wanted in pattern.operands)
    return named and (pattern.more or len(command.operands) <= len(pattern.operands))


def _options(words: list[str]) -> frozenset[str]:
    found: set[str] = set()
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            name = word.partition("=")[0]
            found.add(_LONG.get(name, name))
        elif word.startswith("-"):
            found.update(letter.lower() if letter == "R" else letter for letter in word[1:])
    return frozenset(found)


def _operands(words: list[str]) -> list[str]:
    end = words.index("--") if "--" in words else len(words)
    return [word for word in words[:end] if not word.startswith("-")] + words[end + 1 :]


def _normal(word: str) -> str:
    """A path as it is meant: `//`, `/./` and `/..` are all `/`."""
    return posixpath.normpath(_SLASHES.sub("/", word)) if word[:1] in ("/", "~") else word


def _squeezed(text: str) -> str:
    """Text without blanks, and with functions by one name."""
    text = _BLANKS.sub("", text)
    for name in islice(dict.fromkeys(_FUNCTION.findall(text)), _DEPTH_MAX):
        text = text.replace(name, ":")
    return text


# Every command inside a command.


def _all_in(text: str, depth: int) -> Iterator[Command]:
    if depth > _DEPTH_MAX:
        return
    before: Command | None = None
    for command in commands_in(text):
        yield from _through(command, before if command.is_piped else None, depth)
        before = command


def _through(command: Command, feeding: Command | None, depth: int) -> Iterator[Command]:
    """The command itself, and what it in turn runs."""
    for text in command.inner:
        yield from _all_in(text, depth + 1)
    words = _from_program(command.words)
    yield Command(words, command.writes)
    if not words or depth > _DEPTH_MAX:
        return
    name, texts = posixpath.basename(words[0].text), [word.text for word in words]
    if name in _SHELLS or name == "su":
        for script in [*_scripts(texts), *command.here, *_fed(feeding)]:
            yield from _all_in(script, depth + 1)
    elif name == "eval":
        yield from _all_in(" ".join(texts[1:]), depth + 1)
    elif name == "find":
        yield from _executed(words, depth)
    elif name in _THROUGH:
        yield from _through(Command(_past_options(words, *_THROUGH[name])), None, depth + 1)


def _from_program(words: list[Word]) -> list[Word]:
    at = 0
    while at < len(words) and (words[at].text in _KEYWORDS or _ASSIGNMENT.match(words[at].text)):
        at += 1
    return words[at:]


def _scripts(words: list[str]) -> Iterator[str]:
    for option, script in pairwise(words[1:]):
        is_short = option.startswith("-") and not option.startswith("--")
        if option == "--command" or (is_short and "c" in option):
            yield script


def _fed(feeding: Command | None) -> list[str]:
    """What a shell is given to run through a pipe, where that can be read."""
    words = [word.text for word in feeding.words] if feeding is not None else []
    if not words or posixpath.basename(words[0]) not in ("echo", "printf"):
        return []
    return [" ".join(words[1:])]


def _executed(words: list[Word], depth: int) -> Iterator[Command]:
    places = (at for at, word in enumerate(words) if word.text in ("-exec", "-execdir", "-ok", "-okdir"))
    for at in islice(places, _DEPTH_MAX):
        rest = takewhile(lambda word: word.text not in (";", "+"), words[at + 1 :])
        yield from _through(Command(list(rest)), None, depth + 1)


def _past_options(words: list[Word], taking: str, skipped: int) -> list[Word]:
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
        elif text.startswith("-") and len(text) > 1:
            # With its word attached, or as the next one.
            takes = (
                not text.startswith("--") and text[-1] in taking and (len(text) == 2 or text[1] not in taking)
            )
            at += 2 if takes else 1
        elif _ASSIGNMENT.match(text):
            at += 1
        elif skipped:
            skipped -= 1
            at += 1
        else:
            break
    return words[at:]
