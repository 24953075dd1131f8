"""A program of its own: looks through a folder for lines, or for names, that fit a regular expression.

Python's expressions can take for ever, so they run here, where they can be killed. It knows nothing of
Holdfast and uses the standard library alone. Its order is JSON on standard input; it has the workspace as an
open folder, and goes from there by names, never through a link. What it finds goes to standard output as it
is found; exit code 2 says that what is there is why nothing was looked for.
"""

import json
import os
import re
import resource
import stat
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_SNIFF_BYTES = 8_192
_IGNORE_BYTES_MAX = 100_000
_REFUSED = 2
_NOTES_MAX = 5
_STAR = "[^/]*"


class Enough(Exception):
    """There is no room for more; says why."""


class Ignored(NamedTuple):
    """One line of a `.gitignore`, for what is below the folder that it lies in."""

    base: str
    pattern: "re.Pattern[str]"
    negated: bool
    folders_only: bool


class Found:
    """What goes out, as far as there is room."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._results, self._bytes = order["results_max"], order["bytes_max"]
        self._line_chars = order["line_chars_max"]
        self.count = 0

    def say(self, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace") + b"\n"
        self._bytes -= len(body)
        if self._bytes < 0:
            raise Enough("there is no room for more; narrow the search")
        sys.stdout.buffer.write(body)

    def hit(self, text: str) -> None:
        if self.count >= self._results:
            raise Enough(f"stopped at {self._results:,} results; there are more")
        self.count += 1
        self.say(text)

    def cut(self, line: str, at: int = 0) -> str:
        """As much of a line as is shown, around what was found."""
        if len(line) <= self._line_chars:
            return line
        start = max(0, min(at - self._line_chars // 4, len(line) - self._line_chars))
        end = start + self._line_chars
        return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


class Search:
    """One look through a workspace."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._pattern = re.compile(order["pattern"], 0 if order["case"] else re.IGNORECASE)
        self._glob = glob_pattern(order["glob"], braces=True) if order["glob"] else None
        self._names: bool = order["names"]
        self._context: int = order["context"]
        self._closed = {tuple(identity) for identity in order["closed"]}
        self._sees_ignored = order["ignored"]
        self._depth_max, self._scan_room = order["depth_max"], order["scan_max"]
        self._file_bytes_max = order["file_bytes_max"]
        self._ignored: list[Ignored] = []
        self.found = Found(order)
        self.passed_over = 0
        self.notes: list[str] = []
        self._fits_glob = self._glob.fullmatch if self._glob is not None else lambda path: True

    def run(self, root: int, trail: list[str]) -> None:
        """Look at what `trail` names, from the open folder `root`: a folder and all below, or one file."""
        here, path = root, ""
        for at, name in enumerate(trail):
            self._read_ignored(here, path)
            try:
                here = self._enter(name, here)
            except NotADirectoryError:
                if at == len(trail) - 1:
                    if not self._file(name, here, path + name) and not self.passed_over:
                        self.notes.append("it is no text: nothing was looked for in it")
                    return
                raise
            path += f"{name}/"
        self._folder(here, path, len(trail))

    def _enter(self, name: str, folder: int) -> int:
        opened = os.open(name, _FOLDER, dir_fd=folder)
        found = os.fstat(opened)
        if (found.st_dev, found.st_ino) in self._closed:
            os.close(opened)
            raise PermissionError
        return opened

    def _folder(self, folder: int, path: str, depth: int) -> None:
        known = len(self._ignored)
        self._read_ignored(folder, path)
        try:
            entries = self._entries(folder)
        except OSError as error:
            self._note(f"{printable(path) or 'it'} could not be looked through: {error.strerror or error}")
            entries = []
        for entry in entries:
            whole = path + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or self._is_ignored(whole, is_folder):
                continue
            if is_folder:
                if self._names:
                    self._name(f"{whole}/")
                self._below(entry.name, folder, f"{whole}/", depth + 1)
            elif entry.is_file(follow_symlinks=False) and self._fits_glob(whole):
                self._file(entry.name, folder, whole)
        del self._ignored[known:]

    def _below(self, name: str, folder: int, path: str, depth: int) -> None:
        if depth > self._depth_max:
            self._note(f"folders more than {self._depth_max} deep were passed over")
            return
        try:
            opened = self._enter(name, folder)
        except OSError:
            return  # Gone, closed, or a link by now.
        try:
            self._folder(opened, path, depth)
        finally:
            os.close(opened)

    def _entries(self, folder: int) -> list["os.DirEntry[str]"]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._scan_room -= 1
                if self._scan_room < 0:
                    raise Enough("there are too many names; search in a folder further down")
                found.append(entry)
        return sorted(found, key=lambda entry: os.fsencode(entry.name))

    def _note(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < _NOTES_MAX:
            self.notes.append(note)

    def _file(self, name: str, folder: int, path: str) -> bool:
        """Whether it could be looked at."""
        if self._names:
            self._name(path)
            return True
        content = self._read(name, folder)
        if content is None or b"\0" in content[:_SNIFF_BYTES]:
            return False
        self._lines(content.decode("utf-8", "replace").split("\n"), path)
        return True

    def _name(self, path: str) -> None:
        if self._fits_glob(path.rstrip("/")) and self._pattern.search(path):
            self.found.hit(printable(path))
            sys.stdout.flush()

    def _read(self, name: str, folder: int) -> bytes | None:
        try:
            opened = os.open(name, _FILE, dir_fd=folder)
        except OSError:
            return None
        with os.fdopen(opened, "rb") as file:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode):
                return None
            try:
                content = file.read(self._file_bytes_max + 1)
            except OSError:
                return None
        if len(content) > self._file_bytes_max:
            self.passed_over += 1
            return None
        return content

    def _lines(self, lines: list[str], path: str) -> None:
        shown, last = printable(path), 0
        for number, raw in enumerate(lines, 1):
            line = raw.rstrip("\r")
            hit = self._pattern.search(line)
            if hit is None or (number == len(lines) and not line):
                continue
            first = max(last + 1, number - self._context)
            if self._context and last and first > last + 1:
                self.found.say("--")
            for other in range(first, number):
                self.found.say(f"{shown}-{other}- {self.found.cut(printable(lines[other - 1]))}")
            self.found.hit(f"{shown}:{number}: {self.found.cut(printable(line), hit.start())}")
            last = self._after(lines, number, shown)
        if self.found.count:
            sys.stdout.flush()

    def _after(self, lines: list[str], number: int, shown: str) -> int:
        """The lines behind one that fits, up to the next that does; the last that was shown."""
        for other in range(number + 1, min(number + self._context, len(lines)) + 1):
            line = lines[other - 1].rstrip("\r")
            if self._pattern.search(line) or (other == len(lines) and not line):
                return other - 1
            self.found.say(f"{shown}-{other}- {self.found.cut(printable(line))}")
        return min(number + self._context, len(lines))

    def _read_ignored(self, folder: int, path: str) -> None:
        if self._sees_ignored:
            return
        try:
            opened = os.open(".gitignore", _FILE, dir_fd=folder)
        except OSError:
            return
        with os.fdopen(opened, "rb") as file:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                text = file.read(_IGNORE_BYTES_MAX).decode("utf-8", "replace")
                self._ignored += ignored_in(text, path)

    def _is_ignored(self, path: str, is_folder: bool) -> bool:
        for rule in reversed(self._ignored):  # The last that fits has its way.
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path[len(rule.base) :]):
                return not rule.negated
        return False


def ignored_in(text: str, base: str) -> Iterator[Ignored]:
    """What the lines of a `.gitignore` say; one that cannot be understood says nothing."""
    for raw in text.splitlines():
        line = raw.rstrip()
        if not line or line.startswith("#"):
            continue
        negated, line = line.startswith("!"), line.removeprefix("!")
        folders_only, line = line.endswith("/"), line.rstrip("/")
        try:
            yield Ignored(base, glob_pattern(line), negated, folders_only)
        except re.error:
            continue


def glob_pattern(glob: str, braces: bool = False) -> "re.Pattern[str]":
    """As git reads one: with a slash in it from the base on, else at any depth. `{a,b}` if with `braces`."""
    anchored, glob = "/" in glob.strip("/") or glob.startswith("/"), glob.strip("/")
    text, pieces, at, open_braces = "", list[str](), 0, 0
    while at < len(glob):
        rest = glob[at:]
        # However many stars there are, they are one: each more would be tried in all ways with the others.
        stars = len(rest) - len(rest.lstrip("*"))
        if stars > 1 and rest[stars : stars + 1] == "/":
            text, pieces = f"{text}{_tight(pieces)}(?:.*/)?".replace("(?:.*/)?(?:.*/)?", "(?:.*/)?"), []
            at += stars + 1
        elif stars:
            pieces.append(".*" if stars > 1 else _STAR)
            at += stars
        elif rest[0] == "[" and "]" in rest[2:]:
            end = rest.index("]", 2)
            inner = rest[1:end].replace("\\", "\\\\")
            pieces.append("[^" + inner[1:] + "]" if inner[0] == "!" else f"[{inner}]")
            at += end + 1
        elif braces and rest[0] in "{},":
            is_or = rest[0] == "," and open_braces
            pieces.append("(?:" if rest[0] == "{" else ")" if rest[0] == "}" else "|" if is_or else ",")
            open_braces += {"{": 1, "}": -1}.get(rest[0], 0)
            at += 1
        elif rest[0] == "/" and not open_braces:
            text, pieces, at = f"{text}{_tight(pieces)}/", [], at + 1
        else:
            pieces.append("[^/]" if rest[0] == "?" else re.escape(rest[0]))
            at += 1
    return re.compile(("" if anchored else "(?:.*/)?") + text + _tight(pieces), re.DOTALL)


def _tight(pieces: list[str]) -> str:
    """The pieces of one name as an expression. What lies between two stars is taken where it comes first, and
    nowhere else: that is enough, and else a few stars would take for ever."""
    stars = [at for at, piece in enumerate(pieces) if piece == _STAR]
    if len(stars) < 2 or not {".*", "(?:"}.isdisjoint(pieces):
        return "".join(pieces)
    between = ["".join(pieces[one + 1 : other]) for one, other in pairwise(stars)]
    return "".join((*pieces[: stars[0]], *(f"(?>{_STAR}?{each})" for each in between), *pieces[stars[-1] :]))


def printable(text: str) -> str:
    """On one line, whatever it holds."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def main() -> None:
    """Carry out the order on standard input."""
    order = json.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu_s_max"], order["cpu_s_max"] + 1))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (order["memory_bytes_max"],) * 2)
    try:
        search = Search(order)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        print(f"the pattern cannot be used: {error or type(error).__name__}")
        sys.exit(_REFUSED)
    notes = search.notes
    try:
        search.run(order["root"], order["trail"])
    except Enough as enough:
        notes.append(str(enough))
    except OSError as error:
        print(f"it cannot be opened: {error.strerror or 'no tool may use that folder'}")
        sys.exit(_REFUSED)
    except (MemoryError, RecursionError):
        notes.append("the pattern needs too much memory; not everything was looked at")
    if search.passed_over:
        size = order["file_bytes_max"]
        notes.append(f"files larger than {size:,} bytes were passed over: {search.passed_over:,}")
    if not search.found.count and not notes:
        notes.append("nothing was found")
    sys.stdout.buffer.write("".join(f"[{note}]\n" for note in notes).encode())
