"""Split shell text into the commands in it, as far as possible without running any of it.

The parser never refuses: an unclosed construct ends at the end, and an unknown one is literal. It is fit for
finding something, not for proving its absence. A model writes the text, so a budget limits the steps.
"""

import re
from collections.abc import Callable
from types import MappingProxyType
from typing import Literal, Self

import msgspec

ANY = "[^/]*"
KEYWORDS = frozenset({"!", "{", "}", "if", "then", "else", "elif", "while", "until", "do", "time", "coproc"})
"""Words that may precede a command."""
_HOME = "~"
_NAME = re.compile(r"\{?[#!]?([A-Za-z_]\w*|[0-9@*#?$!-])")
_BLANKS = re.compile(r"[ \t\r]+")
_RUN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_QUOTED_RUN = re.compile(r"(?:[^\"\\$`]++|\\.)++", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r"\\([$`\"\\])")
_BRACED_RUN = re.compile(r"[^'\"\\$`}]+")
_BACKQUOTED = re.compile(r"[^`\\]*+(?:\\.[^`\\]*+)*+", re.DOTALL)
_BACKQUOTED_ESCAPE = re.compile(r"\\([`\\$])")
_ANSI = re.compile(r"[^'\\]*+(?:\\.[^'\\]*+)*+", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|0?([0-7]{1,3})|(.))", re.DOTALL)
_LETTERS = MappingProxyType(dict(zip("abefnrtv", "\a\b\x1b\f\n\r\t\v", strict=True)))
_WILD = re.compile(r"(\*|\[a-z\]|\[0-9\])")
_CHARS_PER_STEP = 64
"""The characters of a text search that count as one step."""


class StepsExceeded(Exception):
    """A text exceeds its budget of steps or its depth."""


class StepBudget:
    """Count the steps and the depth of a parse. `left` are the remaining steps."""

    def __init__(self, left: int, depth: int) -> None:
        self.given = self.left = left
        self._depth = depth

    def take(self, count: int = 1) -> None:
        self.left -= count
        if self.left < 0:
            raise StepsExceeded

    def __enter__(self) -> Self:
        """Enter a nested construct."""
        self.take()
        if not self._depth:
            raise StepsExceeded
        self._depth -= 1
        return self

    def __exit__(self, *_: object) -> None:
        self._depth += 1


class Word(msgspec.Struct):
    """A word in pieces, each with whether it was quoted."""

    pieces: list[tuple[str, bool]] = msgspec.field(default_factory=list)

    def add(self, text: str, quoted: bool) -> None:
        self.pieces.append((text, quoted))

    @property
    def text(self) -> str:
        """The word without its quotes."""
        return "".join([text for text, _ in self.pieces])

    @property
    def is_plain(self) -> bool:
        return not any(_WILD.search(text) and not quoted for text, quoted in self.pieces)

    @property
    def regex(self) -> str:
        """The word as a regular expression; unquoted, `*` matches any part of a name and `[a-z]` a letter."""
        return "".join(re.escape(text) if quoted else _wild(text) for text, quoted in self.pieces)


class ShellCommand(msgspec.Struct):
    """A program and its words, the files that it writes by redirection, and the commands nested in it.

    `here` is text on its input; `is_piped`: it reads the output of the command before it.
    """

    words: list[Word] = msgspec.field(default_factory=list)
    writes: list[Word] = msgspec.field(default_factory=list)
    inner: list[list["ShellCommand"]] = msgspec.field(default_factory=list)
    here: list[str] = msgspec.field(default_factory=list)
    is_piped: bool = False


_Next = Literal["word", "write", "read", "here", "end"]


def parse_commands(text: str, steps: StepBudget) -> list[ShellCommand]:
    """Return the commands of `text` in order, nested ones in `inner`. Raises StepsExceeded."""
    return _Reader(text, steps).read()


def unescape(text: str, steps: StepBudget) -> str:
    """Resolve escapes like `printf`, `echo -e` and `$'...'`. Raises StepsExceeded."""
    steps.take(text.count("\\"))
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


class _Reader:
    """Read to the end of the text; with `closes`, to the bracket that closes the construct."""

    def __init__(self, text: str, steps: StepBudget, at: int = 0, closes: bool = False) -> None:
        steps.take(4 + (0 if closes else len(text) // _CHARS_PER_STEP))
        self._text = text
        self._steps = steps
        self.at = at
        self._closes = closes
        self._found: list[ShellCommand] = []
        self._command = ShellCommand()
        self._word: Word | None = None
        self._next: _Next = "word"
        self._ends: list[tuple[str, ShellCommand]] = []
        # Open brackets, each with whether it is arithmetic; then the number of open `case` constructs.
        self._brackets: list[bool] = []
        self._cases = 0
        if closes and self._is_next("("):
            self._brackets.append(True)

    def read(self) -> list[ShellCommand]:
        text, size, steps = self._text, len(self._text), self._steps
        while self.at < size:
            steps.take()
            char = text[self.at]
            if (run := _RUN.match(text, self.at)) and char != "#":
                word = self._word = self._word or Word()
                word.add(run[0], quoted=False)
                self.at = run.end()
                continue
            self.at += 1
            if char == ")" and self._is_closed():
                break
            self._take(char)
        self._end_command()
        return self._found

    def _pop(self) -> str:
        self.at += 1
        return self._text[self.at - 1]

    def _is_next(self, text: str) -> bool:
        """Return whether `text` comes next, and skip it if so."""
        if not self._text.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _is_closed(self) -> bool:
        """Handle a closing bracket; return whether it closes this reader's construct."""
        self._end_command()
        if self._brackets:
            self._brackets.pop()
        elif not self._cases:  # Inside `case` a bracket only ends a pattern.
            return self._closes
        return False

    @property
    def _is_arithmetic(self) -> bool:
        return bool(self._brackets) and self._brackets[-1]

    def _take(self, char: str) -> None:
        match char:
            case " " | "\t" | "\r":
                self._end_word()
                self._run(_BLANKS)
                self._steps.take(-1)  # Blanks are free: the words beside them are counted.
            case "\n":
                self._end_command()
                self._read_here()
            case "&" if self._is_next(">"):
                self._redirect()
            case "(":
                self._open()
            case ";" | "&" | ")":
                self._end_command()
            case "|":
                is_or = self._is_next("|")
                _ = self._is_next("&")
                self._end_command(pipes=not is_or)
            case ">":
                self._redirect()
            case "<":
                self._read_from()
            case "#" if self._word is None and not self._is_arithmetic:
                self.at = _index(self._text, "\n", self.at)
            case _:
                self._take_in_word(char)

    def _open(self) -> None:
        is_first = self._word is None and not self._command.words
        self._end_command()
        is_double = is_first and not self._is_arithmetic and self._is_next("(")
        self._brackets += [True, True] if is_double else [self._is_arithmetic]

    def _take_in_word(self, char: str) -> None:
        word = self._word = self._word or Word()
        match char:
            case "'":
                self._single_quoted(word)
            case '"':
                self._double_quoted(word)
            case "\\":
                if not self._is_next("\n") and self.at < len(self._text):
                    word.add(self._pop(), quoted=True)
            case "$" if self._is_next("'"):
                word.add(unescape(self._run(_ANSI), self._steps), quoted=True)
                self.at += 1
            case "$" if self._is_next('"'):
                self._double_quoted(word)
            case "$" | "`":
                self._expand(char, word)
            case _:
                word.add(char + self._run(_RUN), quoted=False)

    def _run(self, plain: re.Pattern[str]) -> str:
        found = plain.match(self._text, self.at)
        self.at = found.end() if found else self.at
        return found[0] if found else ""

    def _single_quoted(self, word: Word) -> None:
        end = _index(self._text, "'", self.at)
        word.add(self._text[self.at : end], quoted=True)
        self.at = end + 1

    def _double_quoted(self, word: Word) -> None:
        while self.at < len(self._text) and (char := self._pop()) != '"':
            self._steps.take()
            if char in "$`":
                self._expand(char, word, quoted=True)
            else:
                self.at -= 1
                text = self._run(_QUOTED_RUN) or self._pop()
                self._steps.take(text.count("\\") // 2)
                word.add(_QUOTED_ESCAPE.sub(r"\1", text), quoted=True)

    def _expand(self, char: str, word: Word, quoted: bool = False) -> None:
        """Keep a variable as text, except HOME, and read substitutions as nested commands."""
        if char == "`":
            raw = self._run(_BACKQUOTED)
            self._steps.take(raw.count("\\") // 2)
            text = _BACKQUOTED_ESCAPE.sub(r"\1", raw)
            self.at += 1
            self._enter(lambda: _Reader(text, self._steps).read())
        elif self._is_next("("):
            self._enter(self._inside)
        elif name := _NAME.match(self._text, self.at):
            self.at = name.end()
            word.add(_HOME if name[1] == "HOME" else f"${name[1]}", quoted=True)
            if name[0].startswith("{"):
                with self._steps:
                    self._braced(quoted)
        else:
            word.add(char, quoted=True)

    def _enter(self, read: Callable[[], list[ShellCommand]]) -> None:
        with self._steps:
            self._command.inner.append(read())

    def _inside(self) -> list[ShellCommand]:
        reader = _Reader(self._text, self._steps, self.at, closes=True)
        found = reader.read()
        self.at = reader.at
        return found

    def _braced(self, quoted: bool) -> None:
        """Read the rest of `${NAME...}`, of which only the nested commands count."""
        dropped = Word()
        while self.at < len(self._text) and (char := self._pop()) != "}":
            self._steps.take()
            if char == "\\":
                self.at += 1
            elif char == "'" and not quoted:
                self._single_quoted(dropped)
            elif char == '"':
                self._double_quoted(dropped)
            elif char in "$`":
                self._expand(char, dropped, quoted)
            else:
                self._run(_BRACED_RUN)

    def _redirect(self) -> None:
        if self._is_arithmetic:
            return
        self._drop_number()
        _ = self._is_next(">") or self._is_next("|") or self._is_next("&")
        if self._is_next("("):
            self._enter(self._inside)
        else:
            self._next = "write"

    def _read_from(self) -> None:
        if self._is_arithmetic:
            return
        self._drop_number()
        if self._is_next("("):
            self._enter(self._inside)
        elif self._is_next("<<"):
            self._next = "here"
        elif self._is_next("<"):
            _ = self._is_next("-")
            self._next = "end"
        elif self._is_next(">"):
            self._next = "write"
        else:
            _ = self._is_next("&")
            self._next = "read"

    def _drop_number(self) -> None:
        """Drop the number before a redirection: it names a stream and is no word."""
        if self._word is not None and self._word.text.isdigit():
            self._word = None
        self._end_word()

    def _end_word(self) -> None:
        word, self._word = self._word, None
        if word is None:
            return
        match self._next:
            case "word":
                self._command.words.append(word)
            case "write":
                self._command.writes.append(word)
            case "here":
                self._command.here.append(word.text)
            case "end":
                self._ends.append((word.text, self._command))
            case "read":
                pass
        self._next = "word"

    def _end_command(self, pipes: bool = False) -> None:
        self._end_word()
        self._next = "word"
        command = self._command
        if not (command.words or command.writes or command.inner or command.here):
            command.is_piped = command.is_piped or pipes
            return
        self._steps.take(2)
        self._found.append(command)
        self._count_case(command.words)
        self._command = ShellCommand(is_piped=pipes)

    def _count_case(self, words: list[Word]) -> None:
        at = 0
        while at < len(words) and words[at].text in KEYWORDS:
            at += 1
        if at < len(words) and words[at].text == "esac":
            self._cases = max(0, self._cases - 1)
        elif len(words) > at + 2 and words[at].text == "case" and words[at + 2].text == "in":
            self._cases += 1

    def _read_here(self) -> None:
        """Read the here-documents of the commands, each up to its end line."""
        for end, command in self._ends:
            self._steps.take()
            start, stop = self._line_of(end)
            command.here.append(self._text[self.at : start])
            self.at = stop
        self._ends = []

    def _line_of(self, end: str) -> tuple[int, int]:
        """Return where the next line that is only `end` begins, and where the line after it does."""
        text, at = self._text, self.at
        while (found := text.find(end, at)) >= 0 and at < len(text):
            self._steps.take()
            start, stop = text.rfind("\n", at, found) + 1 or at, _index(text, "\n", found)
            if text[start:stop].strip() == end.strip():
                return start, stop + 1
            at = stop + 1
        return len(text), len(text)


def _index(text: str, char: str, at: int) -> int:
    """Return where `char` comes next, or the end."""
    found = text.find(char, at)
    return found if found >= 0 else len(text)


def _wild(text: str) -> str:
    pieces = _WILD.split(text)
    # Every second piece is a wildcard.
    pieces[::2] = map(re.escape, pieces[::2])
    pieces[1::2] = [ANY if piece == "*" else piece for piece in pieces[1::2]]
    return "".join(pieces)


def _unescape(found: re.Match[str]) -> str:
    if number := found[1] or found[2]:
        return chr(int(number, 16))
    if found[3]:
        return chr(int(found[3], 8) & 0xFF)
    return _LETTERS.get(found[4], found[4] if found[4] in "\\'\"?" else found[0])
