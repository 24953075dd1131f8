"""A standalone program: search a folder for lines or paths that match a regular expression.

Python's regular expressions can run for ever, so they run in a process that the server can kill. The program
imports nothing from Holdfast and uses only the standard library. It reads a JSON request from standard input,
inherits the workspace as an open folder, and follows names from there, never links. It writes each result to
standard output at once. Exit code 2 means that it refused to search; the output then says why.
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
_REFUSED_EXIT_CODE = 2
_NOTES_MAX = 5
_STAR = "[^/]*"


class LimitReached(Exception):
    """The search has reached a limit; the message names it."""


class IgnoreRule(NamedTuple):
    """One line of a `.gitignore` file in the folder `base`."""

    base: str
    pattern: "re.Pattern[str]"
    negated: bool
    folders_only: bool


class ResultWriter:
    """Write results to standard output up to the limits."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._results, self._bytes = request["results_max"], request["bytes_max"]
        self._line_chars = request["line_chars_max"]
        self.count = 0

    def write_line(self, text: str) -> None:
        body = text.encode("utf-8", "backslashreplace") + b"\n"
        self._bytes -= len(body)
        if self._bytes < 0:
            raise LimitReached("there is no room for more; narrow the search")
        sys.stdout.buffer.write(body)

    def write_result(self, text: str) -> None:
        if self.count >= self._results:
            raise LimitReached(f"stopped at {self._results:,} results; there are more")
        self.count += 1
        self.write_line(text)

    def truncate_line(self, line: str, at: int = 0) -> str:
        """Return the part of a long line around the match at `at`."""
        if len(line) <= self._line_chars:
            return line
        start = max(0, min(at - self._line_chars // 4, len(line) - self._line_chars))
        end = start + self._line_chars
        return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


class FileSearch:
    """One search through a workspace."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._pattern = re.compile(request["pattern"], 0 if request["case"] else re.IGNORECASE)
        self._glob = glob_pattern(request["glob"], braces=True) if request["glob"] else None
        self._names: bool = request["names"]
        self._context: int = request["context"]
        self._protected_ids = {tuple(identity) for identity in request["closed"]}
        self._includes_ignored = request["ignored"]
        self._depth_max, self._scan_room = request["depth_max"], request["scan_max"]
        self._file_bytes_max = request["file_bytes_max"]
        self._ignore_rules: list[IgnoreRule] = []
        self.results = ResultWriter(request)
        self.skipped_files = 0
        self.notes: list[str] = []
        self._matches_glob = self._glob.fullmatch if self._glob is not None else lambda path: True

    def run(self, root: int, path_parts: list[str]) -> None:
        """Search the file or folder at `path_parts` below the open folder `root`."""
        fd, path = root, ""
        for index, name in enumerate(path_parts):
            self._read_ignore_file(fd, path)
            try:
                fd = self._open_folder(name, fd)
            except NotADirectoryError:
                if index == len(path_parts) - 1:
                    if not self._search_file(name, fd, path + name) and not self.skipped_files:
                        self.notes.append("it is no text: nothing was looked for in it")
                    return
                raise
            path += f"{name}/"
        self._search_folder(fd, path, len(path_parts))

    def _open_folder(self, name: str, folder: int) -> int:
        opened = os.open(name, _FOLDER, dir_fd=folder)
        found = os.fstat(opened)
        if (found.st_dev, found.st_ino) in self._protected_ids:
            os.close(opened)
            raise PermissionError
        return opened

    def _search_folder(self, folder: int, path: str, depth: int) -> None:
        known = len(self._ignore_rules)
        self._read_ignore_file(folder, path)
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
                    self._match_name(f"{whole}/")
                self._search_subfolder(entry.name, folder, f"{whole}/", depth + 1)
            elif entry.is_file(follow_symlinks=False) and self._matches_glob(whole):
                self._search_file(entry.name, folder, whole)
        del self._ignore_rules[known:]

    def _search_subfolder(self, name: str, folder: int, path: str, depth: int) -> None:
        if depth > self._depth_max:
            self._note(f"folders more than {self._depth_max} deep were passed over")
            return
        try:
            opened = self._open_folder(name, folder)
        except OSError:
            return  # It is gone, protected, or a link by now.
        try:
            self._search_folder(opened, path, depth)
        finally:
            os.close(opened)

    def _entries(self, folder: int) -> list["os.DirEntry[str]"]:
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                self._scan_room -= 1
                if self._scan_room < 0:
                    raise LimitReached("there are too many names; search in a folder further down")
                found.append(entry)
        return sorted(found, key=lambda entry: os.fsencode(entry.name))

    def _note(self, note: str) -> None:
        if note not in self.notes and len(self.notes) < _NOTES_MAX:
            self.notes.append(note)

    def _search_file(self, name: str, folder: int, path: str) -> bool:
        """Search one file and return whether it was searchable."""
        if self._names:
            self._match_name(path)
            return True
        content = self._read(name, folder)
        if content is None or b"\0" in content[:_SNIFF_BYTES]:
            return False
        self._search_lines(content.decode("utf-8", "replace").split("\n"), path)
        return True

    def _match_name(self, path: str) -> None:
        if self._matches_glob(path.rstrip("/")) and self._pattern.search(path):
            self.results.write_result(printable(path))
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
            self.skipped_files += 1
            return None
        return content

    def _search_lines(self, lines: list[str], path: str) -> None:
        shown, last_shown = printable(path), 0
        for number, raw in enumerate(lines, 1):
            line = raw.rstrip("\r")
            hit = self._pattern.search(line)
            if hit is None or (number == len(lines) and not line):
                continue
            first = max(last_shown + 1, number - self._context)
            if self._context and last_shown and first > last_shown + 1:
                self.results.write_line("--")
            for other in range(first, number):
                self.results.write_line(
                    f"{shown}-{other}- {self.results.truncate_line(printable(lines[other - 1]))}"
                )
            self.results.write_result(
                f"{shown}:{number}: {self.results.truncate_line(printable(line), hit.start())}"
            )
            last_shown = self._write_context_after(lines, number, shown)
        if self.results.count:
            sys.stdout.flush()

    def _write_context_after(self, lines: list[str], number: int, shown: str) -> int:
        """Write context lines up to the next match, and return the number of the last one."""
        for other in range(number + 1, min(number + self._context, len(lines)) + 1):
            line = lines[other - 1].rstrip("\r")
            if self._pattern.search(line) or (other == len(lines) and not line):
                return other - 1
            self.results.write_line(f"{shown}-{other}- {self.results.truncate_line(printable(line))}")
        return min(number + self._context, len(lines))

    def _read_ignore_file(self, folder: int, path: str) -> None:
        if self._includes_ignored:
            return
        try:
            opened = os.open(".gitignore", _FILE, dir_fd=folder)
        except OSError:
            return
        with os.fdopen(opened, "rb") as file:
            if stat.S_ISREG(os.fstat(opened).st_mode):
                text = file.read(_IGNORE_BYTES_MAX).decode("utf-8", "replace")
                self._ignore_rules += parse_ignore_rules(text, path)

    def _is_ignored(self, path: str, is_folder: bool) -> bool:
        for rule in reversed(self._ignore_rules):  # The last matching rule wins.
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(path[len(rule.base) :]):
                return not rule.negated
        return False


def parse_ignore_rules(text: str, base: str) -> Iterator[IgnoreRule]:
    """Parse a `.gitignore` file, skipping lines that are not valid."""
    for raw in text.splitlines():
        line = raw.rstrip()
        if not line or line.startswith("#"):
            continue
        negated, line = line.startswith("!"), line.removeprefix("!")
        folders_only, line = line.endswith("/"), line.rstrip("/")
        try:
            yield IgnoreRule(base, glob_pattern(line), negated, folders_only)
        except re.error:
            continue


def glob_pattern(glob: str, braces: bool = False) -> "re.Pattern[str]":
    """Compile a glob as git reads it: with a slash it is anchored, else it matches at any depth.

    With `braces`, it may contain alternatives such as `{a,b}`.
    """
    anchored, glob = "/" in glob.strip("/") or glob.startswith("/"), glob.strip("/")
    text, pieces, at, open_braces = "", list[str](), 0, 0
    while at < len(glob):
        rest = glob[at:]
        # Adjacent stars become one, since each more would multiply the backtracking.
        stars = len(rest) - len(rest.lstrip("*"))
        if stars > 1 and rest[stars : stars + 1] == "/":
            text, pieces = (
                f"{text}{_join_pattern(pieces)}(?:.*/)?".replace("(?:.*/)?(?:.*/)?", "(?:.*/)?"),
                [],
            )
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
            text, pieces, at = f"{text}{_join_pattern(pieces)}/", [], at + 1
        else:
            pieces.append("[^/]" if rest[0] == "?" else re.escape(rest[0]))
            at += 1
    return re.compile(("" if anchored else "(?:.*/)?") + text + _join_pattern(pieces), re.DOTALL)


def _join_pattern(pieces: list[str]) -> str:
    """Join the pieces of one name into an expression that does not backtrack between stars.

    The first match of the text between two stars suffices; backtracking over a few stars could take for ever.
    """
    stars = [at for at, piece in enumerate(pieces) if piece == _STAR]
    if len(stars) < 2 or not {".*", "(?:"}.isdisjoint(pieces):
        return "".join(pieces)
    between = ["".join(pieces[one + 1 : other]) for one, other in pairwise(stars)]
    return "".join((*pieces[: stars[0]], *(f"(?>{_STAR}?{text})" for text in between), *pieces[stars[-1] :]))


def printable(text: str) -> str:
    """Return `text` on one line, with escapes for unprintable characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\t" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def main() -> None:
    """Run the request on standard input."""
    request = json.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_s_max"], request["cpu_s_max"] + 1))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes_max"],) * 2)
    try:
        search = FileSearch(request)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        print(f"the pattern cannot be used: {error or type(error).__name__}")
        sys.exit(_REFUSED_EXIT_CODE)
    notes = search.notes
    try:
        search.run(request["root"], request["trail"])
    except LimitReached as limit:
        notes.append(str(limit))
    except OSError as error:
        print(f"it cannot be opened: {error.strerror or 'no tool may use that folder'}")
        sys.exit(_REFUSED_EXIT_CODE)
    except (MemoryError, RecursionError):
        notes.append("the pattern needs too much memory; not everything was looked at")
    if search.skipped_files:
        size = request["file_bytes_max"]
        notes.append(f"files larger than {size:,} bytes were passed over: {search.skipped_files:,}")
    if not search.results.count and not notes:
        notes.append("nothing was found")
    sys.stdout.buffer.write("".join(f"[{note}]\n" for note in notes).encode())
