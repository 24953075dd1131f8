"""Find every command inside a command: after wrappers, in scripts, and in piped text."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, pairwise
from types import MappingProxyType

import msgspec

from holdfast.domain.shell.parser import KEYWORDS, ShellCommand, StepBudget, Word, parse_commands, unescape

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash"})
_RUNS_SCRIPT_OPTION = _SHELLS | {"su", "runuser", "script", "flock", "sg"}
"""Programs that run the word after `-c`."""
_READS_SCRIPT = _SHELLS | {"su", "at", "batch"}
"""Programs that run their input."""
_COPIES_INPUT = frozenset({"cat", "tee"})
"""Programs that copy their input to their output."""
_WORD_OPTIONS = frozenset({"find"})
"""Programs whose options are whole words after one dash."""
_LONG = MappingProxyType({"--recursive": "r", "--force": "f"})
_FOLDER_CHARS_MAX = 200
_EXECUTING = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_WRAPPERS: Mapping[str, tuple[str, int]] = MappingProxyType({
    "sudo": ("ugpCDhrtTUR", 0), "doas": ("uC", 0), "env": ("uC", 0), "nice": ("n", 0), "ionice": ("cnp", 0),
    "nohup": ("", 0), "setsid": ("", 0), "stdbuf": ("ioe", 0), "timeout": ("ks", 1), "time": ("fo", 0),
    "command": ("", 0), "builtin": ("", 0), "exec": ("a", 0), "xargs": ("InLPdEas", 0), "watch": ("n", 0),
    "chroot": ("", 1), "busybox": ("", 0), "toybox": ("", 0), "systemd-run": ("pu", 0), "strace": ("oepP", 0),
    "unshare": ("", 0), "flock": ("wE", 1), "chrt": ("", 1), "taskset": ("", 1), "runuser": ("ugG", 0),
    "pkexec": ("", 0), "nsenter": ("tSG", 0), "setpriv": ("", 0), "prlimit": ("", 0), "fakeroot": ("", 0),
    "dbus-run-session": ("", 0), "systemd-inhibit": ("", 0), "caffeinate": ("tw", 0), "numactl": ("", 0),
})  # fmt: skip
"""Programs that run the rest of their words, with the options that take a word and the words to skip."""


class InnerCommand(msgspec.Struct):
    """A command that runs: its program without the path, its words, its output files, and its folder."""

    program: str
    words: list[str]
    writes: list[str]
    folder: str

    def in_folder(self, words: Sequence[str]) -> list[str]:
        """Return relative words as paths in the folder, if the command itself sets it."""
        return [f"{self.folder}/{word}" for word in words if word[:1] not in "/~$"] if self.folder else []


class CommandWalker:
    """Walk through a command once, tracking the folder that an earlier `cd` in it set, if known."""

    def __init__(self, steps: StepBudget) -> None:
        self._steps = steps
        self._folder = ""

    def commands(self, text: str) -> Iterator[InnerCommand]:
        """Yield every command inside `text`, and those that each runs in turn. Raises StepsExceeded."""
        with self._steps:
            yield from self._expand_all(parse_commands(text, self._steps))

    def _expand_all(self, commands: Sequence[ShellCommand]) -> Iterator[InnerCommand]:
        before: ShellCommand | None = None
        piped: list[str] = []
        for command in commands:
            piped = (
                _piped_output(before, piped, self._steps) if command.is_piped and before is not None else []
            )
            yield from self._expand(command, piped)
            before = command

    def _expand(self, command: ShellCommand, piped: list[str]) -> Iterator[InnerCommand]:
        """Yield the command itself and those that it runs; `piped` is its known input from a pipe."""
        with self._steps:
            for inner in command.inner:
                yield from self._expand_all(inner)
            words = _from_program(command.words)
            self._steps.take(4 + len(words) // 4)
            texts = [word.text for word in words]
            name = posixpath.basename(texts[0]) if texts else ""
            yield InnerCommand(name, texts[1:], [word.text for word in command.writes], self._folder)
            if name in ("cd", "pushd"):
                self._change_folder([text for text in texts[1:] if not text.startswith("-")])
            for script in _scripts(name, texts, [*command.here, *piped]):
                yield from self.commands(script)
            if name == "find":
                for run in _executed(words):
                    yield from self._expand(ShellCommand(run), [])
            elif name in _WRAPPERS:
                rest = _past_options(words, *_WRAPPERS[name])
                if name == "watch":
                    yield from self.commands(" ".join(word.text for word in rest))
                    return
                if name == "xargs":
                    rest, piped = [*rest, *_argument_words(piped)], []
                yield from self._expand(ShellCommand(rest, here=command.here), piped)

    def _change_folder(self, where: list[str]) -> None:
        to = where[0] if where else "~"
        if to[:1] not in ("/", "~"):
            to = f"{self._folder}/{to}" if self._folder and to[:1] not in ("$", "-") else ""
        to = posixpath.normpath(f"/{to.lstrip('/')}" if to.startswith("/") else to)
        # No pattern names a folder this deep.
        self._folder = to if to[:1] in ("/", "~") and len(to) <= _FOLDER_CHARS_MAX else ""


def options_of(program: str, words: Sequence[str]) -> frozenset[str]:
    """Return the options among words: letters, in any order and grouping, and long names."""
    found: set[str] = set()
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            name = word.partition("=")[0]
            found.add(_LONG.get(name, name))
        elif word.startswith("-") and program in _WORD_OPTIONS:
            found.add(word)
        elif word.startswith("-"):
            found.update(word[1:].replace("R", "r"))
    return frozenset(found)


def _from_program(words: list[Word]) -> list[Word]:
    at = 0
    while at < len(words):
        text = words[at].text
        if text == "function":
            at += 2
        elif text in KEYWORDS or _ASSIGNMENT.match(text):
            at += 1
        else:
            break
    return words[at:] if at else words


def _scripts(name: str, texts: list[str], read: list[str]) -> Iterator[str]:
    """Yield the scripts that a command runs as shell text; `read` is its input."""
    if name in _RUNS_SCRIPT_OPTION:
        for option, script in pairwise(texts[1:]):
            is_short = option.startswith("-") and not option.startswith("--")
            if option == "--command" or (is_short and "c" in option):
                yield script
    if name in _READS_SCRIPT:
        yield from read
    elif name == "eval":
        yield " ".join(texts[1:])
    elif name == "trap":
        yield from texts[1:2]
    elif name == "env":
        yield from (script for option, script in pairwise(texts[1:]) if option == "-S")


def _piped_output(command: ShellCommand, piped: list[str], steps: StepBudget) -> list[str]:
    """Return the known output of a command into a pipe; `piped` is its own input."""
    texts = [word.text for word in _from_program(command.words)]
    name = posixpath.basename(texts[0]) if texts else ""
    if name in _COPIES_INPUT:
        return [*command.here, *piped]
    words = list(dropwhile(lambda text: text.startswith("-"), texts[1:]))
    if name == "echo":
        line = " ".join(words)
        return list(dict.fromkeys((line, unescape(line, steps))))
    if name == "printf":
        return [unescape(" ".join(words), steps), unescape("\n".join(words[1:]), steps)]
    # File names mean nothing as a script, but they matter as further words of a command.
    is_list = name == "ls" or (name == "find" and len(texts) == 2)
    return [*command.here, *([" ".join(words)] if is_list else [])]


def _argument_words(piped: list[str]) -> list[Word]:
    return [Word([(text, True)]) for text in dict.fromkeys(word for text in piped for word in text.split())]


def _executed(words: list[Word]) -> Iterator[list[Word]]:
    """Yield the commands that `find` runs. A nested `find` is expanded later."""
    run: list[Word] | None = None
    for word in words:
        if run is None:
            run = [] if word.text in _EXECUTING else None
        elif word.text in (";", "+"):
            yield run
            run = None
        else:
            run.append(word)
    if run:
        yield run


def _past_options(words: list[Word], taking: str, skipped: int) -> list[Word]:
    at = 1
    while at < len(words):
        text = words[at].text
        if text == "--":
            at += 1
        elif text.startswith("-") and len(text) > 1:
            # The option's word is attached or comes next.
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
