"""Shell text taken apart into the commands that are in it, as far as that goes without running any of it.

It never refuses: what is not closed ends at the end, what is not known stands for itself. Fit for looking for
something, not for being sure that nothing else is there.
"""

import re
from typing import Literal

import msgspec

_NAME = re.compile(r"\{?#?!?([A-Za-z_]\w*|[0-9@*#?$!-])")
_HOME = "~"
ANY = "[^/]*"
_RUN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_QUOTED_RUN = re.compile(r"[^\"\\$`]+")


class Word(msgspec.Struct):
    """A word in pieces, each with whether it stood in quotes."""

    pieces: list[tuple[str, bool]] = msgspec.field(default_factory=list)

    def add(self, text: str, quoted: bool) -> None:
        self.pieces.append((text, quoted))

    @property
    def text(self) -> str:
        """The word without its quotes."""
        return "".join(text for text, _ in self.pieces)

    @property
    def is_plain(self) -> bool:
        return not any("*" in text and not quoted for text, quoted in self.pieces)

    @property
    def wildcard(self) -> str:
        """What the word stands for as a pattern: `*` outside quotes for any part of a name."""
        return "".join(
            re.escape(text) if quoted else ANY.join(map(re.escape, text.split("*")))
            for text, quoted in self.pieces
        )


class Command(msgspec.Struct):
    """A program and its words; what it writes to by redirection, and what stands in it to be run first.

    `here` is text that it is given to read; `is_piped`: it reads what the command before it writes.
    """

    words: list[Word] = msgspec.field(default_factory=list)
    writes: list[Word] = msgspec.field(default_factory=list)
    inner: list[str] = msgspec.field(default_factory=list)
    here: list[str] = msgspec.field(default_factory=list)
    is_piped: bool = False


_Next = Literal["word", "write", "read", "here", "end"]


def commands_in(text: str) -> list[Command]:
    """The commands of `text` in their order, those inside substitutions as text in `inner`."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: list[Command] = []
        self._command = Command()
        self._word: Word | None = None
        self._next: _Next = "word"
        self._ends: list[tuple[str, Command]] = []

    def read(self) -> list[Command]:
        while self._at < len(self._text):
            self._take(self._pop())
        self._end_command()
        return self._found

    def _pop(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _is_next(self, text: str) -> bool:
        """Whether `text` comes next; it is passed over then."""
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _take(self, char: str) -> None:
        match char:
            case " " | "\t" | "\r":
                self._end_word()
            case "\n":
                self._end_command()
                self._read_here()
            case "&" if self._is_next(">"):
                self._redirect()
            case ";" | "&" | "(" | ")":
                self._end_command()
            case "|":
                self._end_command(pipes=not self._is_next("|"))
            case ">":
                self._redirect()
            case "<":
                self._read_from()
            case "#" if self._word is None:
                self._at = _index(self._text, "\n", self._at)
            case _:
                self._take_in_word(char)

    def _take_in_word(self, char: str) -> None:
        word = self._word = self._word or Word()
        match char:
            case "'":
                end = _index(self._text, "'", self._at)
                word.add(self._text[self._at : end], quoted=True)
                self._at = end + 1
            case '"':
                self._double_quoted(word)
            case "\\":
                if not self._is_next("\n") and self._at < len(self._text):
                    word.add(self._pop(), quoted=True)
            case "$" | "`":
                self._expand(char, word)
            case _:
                word.add(char + self._run(_RUN), quoted=False)

    def _run(self, plain: re.Pattern[str]) -> str:
        found = plain.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found[0] if found else ""

    def _double_quoted(self, word: Word) -> None:
        while self._at < len(self._text) and (char := self._pop()) != '"':
            if char == "\\" and self._at < len(self._text):
                after = self._pop()
                word.add(after if after in '$`"\\' else char + after, quoted=True)
            elif char in "$`":
                self._expand(char, word)
            else:
                word.add(char + self._run(_QUOTED_RUN), quoted=True)

    def _expand(self, char: str, word: Word) -> None:
        """A variable stays as it is written, but for one's own folder; what is to be run is kept apart."""
        if char == "`":
            end = _index(self._text, "`", self._at)
            self._command.inner.append(self._text[self._at : end])
            self._at = end + 1
        elif self._is_next("("):
            end = self._closing()
            self._command.inner.append(self._text[self._at : end])
            self._at = end + 1
        elif name := _NAME.match(self._text, self._at):
            braced = name[0].startswith("{")
            self._at = _index(self._text, "}", self._at) + 1 if braced else name.end()
            word.add(_HOME if name[1] == "HOME" else f"${name[1]}", quoted=True)
        else:
            word.add(char, quoted=True)

    def _closing(self) -> int:
        """Where the bracket that is open here is closed."""
        depth, at, quote = 1, self._at, ""
        while at < len(self._text):
            char = self._text[at]
            if char == "\\" and quote != "'":
                at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char in "()":
                depth += 1 if char == "(" else -1
                if not depth:
                    return at
            at += 1
        return at

    def _redirect(self) -> None:
        self._drop_number()
        _ = self._is_next(">") or self._is_next("|") or self._is_next("&")
        self._next = "write"

    def _read_from(self) -> None:
        self._drop_number()
        if self._is_next("<<"):
            self._next = "here"
        elif self._is_next("<"):
            _ = self._is_next("-")
            self._next = "end"
        else:
            _ = self._is_next(">") or self._is_next("&")
            self._next = "read"

    def _drop_number(self) -> None:
        """The number before a redirection says which stream is meant; it is no word."""
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
        if command.words or command.writes or command.inner:
            self._found.append(command)
        self._command = Command(is_piped=pipes)

    def _read_here(self) -> None:
        """The lines that follow belong to those commands, each up to its own last line."""
        for end, command in self._ends:
            lines: list[str] = []
            while self._at < len(self._text):
                stop = _index(self._text, "\n", self._at)
                line, self._at = self._text[self._at : stop], stop + 1
                if line.strip() == end:
                    break
                lines.append(line)
            command.here.append("\n".join(lines))
        self._ends = []


def _index(text: str, char: str, at: int) -> int:
    """Where `char` comes next; if nowhere, the end."""
    found = text.find(char, at)
    return found if found >= 0 else len(text)
