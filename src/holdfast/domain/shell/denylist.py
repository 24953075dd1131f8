"""Find denied commands wherever a command may hide in another.

This guards against accidents and is no sandbox: it sees through what people and models write without thinking
(`sudo`, `&&`, `sh -c`, substitutions, loops), and prefers false alarms. A determined author can get past it;
the sandbox contains what runs anyway. A check takes steps in proportion to a command's length, since others
wait for the store meanwhile. A command that would take more steps does not run.
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

import msgspec

from holdfast.domain.errors import CommandForbidden, CommandNotCheckable
from holdfast.domain.limits import SHELL_COMMAND_BYTES_MAX
from holdfast.domain.shell.commands import SHELL_TOOL, UnreadableArguments, command_from_arguments
from holdfast.domain.shell.inner_commands import CommandWalker, InnerCommand, options_of
from holdfast.domain.shell.parser import ANY, StepBudget, StepsExceeded, Word, parse_commands

TOO_COMPLEX = "is too long or too nested"
UNCLEAR = "is not written clearly enough"
"""Verdicts on commands that could not be checked completely."""

_DEPTH_MAX = 24
_STEPS_MIN = 1_000
STEPS_MAX = 20_000
"""The most steps that any command may take."""
_VERDICTS_MAX = 10_000
_VERDICT_CHARS_MAX = 4_000_000
_NAMES_MAX = 8
_FUNCTION = re.compile(r"(?<![\w:.])([\w:.]++)\(\)")
_BLANKS = re.compile(r"\s+")
_SLASHES = re.compile(r"/+")


class _Pattern(msgspec.Struct, frozen=True):
    """A denied command.

    `more`: any further words may follow. A pattern that is no single command matches as text.
    """

    text: str
    program: re.Pattern[str] | None = None
    options: frozenset[str] = frozenset()
    operands: tuple[re.Pattern[str], ...] = ()
    writes: tuple[re.Pattern[str], ...] = ()
    more: bool = False


def verdict_error(verdict: str) -> CommandForbidden:
    """Return the error for a call with this verdict."""
    return (
        CommandNotCheckable(why=verdict)
        if verdict in (TOO_COMPLEX, UNCLEAR)
        else CommandForbidden(pattern=verdict)
    )


def step_budget(command: str) -> StepBudget:
    """Return the budget for checking a command."""
    return StepBudget(min(STEPS_MAX, _STEPS_MIN + 2 * len(command)), _DEPTH_MAX)


class Denylist:
    """Check commands against a list of patterns; within a word `*` matches any part of a name."""

    def __init__(self, patterns: Iterable[str]) -> None:
        found = [_pattern(text) for text in patterns]
        self._texts = [pattern for pattern in found if pattern.program is None and not pattern.writes]
        self._commands = [pattern for pattern in found if pattern.program is not None]
        self._writes = [pattern for pattern in found if pattern.program is None and pattern.writes]
        words = (word for pattern in found for word in (*pattern.operands, *pattern.writes))
        self._words = re.compile("|".join(f"(?:{word.pattern})" for word in words) or r"(?!)")
        # Cached, because each decision about a run checks its calls again.
        self._verdicts: dict[str, str] = {}
        self._verdict_chars = 0

    def check_call(self, tool: str, arguments: str) -> str:
        """Return the pattern that a call matches, or why it cannot be checked; empty if it may run."""
        if tool != SHELL_TOOL or not (self._texts or self._commands or self._writes):
            return ""
        if arguments not in self._verdicts:
            self._verdict_chars += len(arguments)
            if len(self._verdicts) >= _VERDICTS_MAX or self._verdict_chars > _VERDICT_CHARS_MAX:
                self._verdicts.clear()
                self._verdict_chars = len(arguments)
            self._verdicts[arguments] = self._verdict(arguments)
        return self._verdicts[arguments]

    def _verdict(self, arguments: str) -> str:
        try:
            command = command_from_arguments(arguments)
        except UnreadableArguments:
            return UNCLEAR
        return self.check_command(command) if command is not None else ""  # The tool refuses it.

    def check_command(self, command: str, steps: StepBudget | None = None) -> str:
        """Return the verdict on a command."""
        if len(command) > SHELL_COMMAND_BYTES_MAX:
            return ""  # The tool refuses it.
        steps, squeezed = steps or step_budget(command), _without_blanks(command)
        for pattern in self._texts:
            if _without_blanks(pattern.text) in squeezed:
                return pattern.text
        by_program: dict[str, list[_Pattern]] = {}
        try:
            for found in CommandWalker(steps).commands(command):
                patterns = by_program.get(found.program)
                if patterns is None:
                    patterns = by_program[found.program] = self._patterns_for(found.program, steps)
                if verdict := self._match(patterns, found, steps):
                    return verdict
        except StepsExceeded:
            return TOO_COMPLEX
        return ""

    def _patterns_for(self, program: str, steps: StepBudget) -> list[_Pattern]:
        steps.take(1 + len(self._commands) // 8)
        return [known for known in self._commands if known.program and known.program.fullmatch(program)]

    def _match(self, patterns: Sequence[_Pattern], found: InnerCommand, steps: StepBudget) -> str:
        """Return the pattern that a command matches; only words that some pattern names are compared."""
        writes = self._matching_words(found.writes)
        patterns = [*patterns, *self._writes] if writes else patterns
        if not patterns:
            return ""
        steps.take(2 + len(found.words) + len(found.writes))
        options = options_of(found.program, found.words)
        operands = _operands(found.words)
        named = self._matching_words([*operands, *found.in_folder(operands)])
        steps.take(len(patterns) // 4 + len(patterns) * (len(named) + len(writes)))
        for pattern in patterns:
            if pattern.operands and not named:
                continue
            is_whole = pattern.more or len(operands) <= len(pattern.operands)
            if is_whole and _matches(pattern, options, named, writes):
                return pattern.text
        return ""

    def _matching_words(self, words: Iterable[str]) -> list[str]:
        return [word for word in dict.fromkeys(map(_normalize_path, words)) if self._words.fullmatch(word)]


def _pattern(text: str) -> _Pattern:
    try:
        found = parse_commands(text, step_budget(text))
    except StepsExceeded:
        return _Pattern(text)
    if len(found) != 1 or not (found[0].words or found[0].writes):
        return _Pattern(text)
    words, writes = found[0].words, list(found[0].writes)
    more = bool(words) and words[-1].regex == ANY
    words = words[:-1] if more else words
    program = _regex(words[0], posixpath.basename) if words else None
    options = options_of(words[0].text, [word.text for word in words[1:]]) if words else frozenset()
    operands = tuple(_regex(word, _normalize_path) for word in words[1:] if not word.text.startswith("-"))
    return _Pattern(
        text, program, options, operands, tuple(_regex(w, _normalize_path) for w in writes), more or not words
    )


def _regex(word: Word, normal: Callable[[str], str]) -> re.Pattern[str]:
    return re.compile(re.escape(normal(word.text)) if word.is_plain else word.regex)


def _matches(
    pattern: _Pattern, options: frozenset[str], operands: Sequence[str], writes: Sequence[str]
) -> bool:
    return (
        pattern.options <= options
        and all(any(wanted.fullmatch(text) for text in writes) for wanted in pattern.writes)
        and all(any(wanted.fullmatch(text) for text in operands) for wanted in pattern.operands)
    )


def _operands(words: list[str]) -> list[str]:
    end = words.index("--") if "--" in words else len(words)
    return [word for word in words[:end] if not word.startswith("-")] + words[end + 1 :]


def _normalize_path(word: str) -> str:
    """Return a normalized path: `//`, `/./` and `/..` all become `/`."""
    return posixpath.normpath(_SLASHES.sub("/", word)) if word[:1] in ("/", "~") else word


def _without_blanks(text: str) -> str:
    """Return text without blanks, and with all functions renamed to one name."""
    text = _BLANKS.sub("", text)
    for name in islice(dict.fromkeys(_FUNCTION.findall(text)), _NAMES_MAX):
        text = text.replace(name, ":")
    return text
