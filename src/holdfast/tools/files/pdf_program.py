"""A standalone program: read a PDF file from standard input and write its text to standard output.

The parser reads hostile input, so it runs in its own process in the sandbox of commands: without network or
writing, and with nothing to read but its own program. It writes each page at once. The exit code says why
there is no text.
"""

import os
import re
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

EXIT_BROKEN, EXIT_ENCRYPTED, EXIT_OUT_OF_MEMORY = 1, 2, 3
"""Exit codes; the first is also Python's for an uncaught exception."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_PARSER_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
    struct.error, zlib.error,
)  # fmt: skip
"""Errors that the parser raises for files that are broken in ways that it does not expect."""


class OutputFull(Exception):
    """The text has reached its limit."""


class BoundedWriter:
    """Write text to standard output up to a limit."""

    def __init__(self, bytes_max: int) -> None:
        self._room = bytes_max

    def write(self, text: str) -> None:
        """Write `text`, or its beginning. Raises OutputFull at the limit."""
        body = text.encode("utf-8", "replace")
        sys.stdout.buffer.write(body[: self._room])
        sys.stdout.flush()
        self._room -= len(body)
        if self._room < 0:
            raise OutputFull


def extract(reader: Any, pages_max: int, bytes_max: int, refusal: type[Exception]) -> None:
    """Write the text of the first pages, each below its number, then notes on what is left out."""
    pages, output, is_scan, broken = reader.pages, BoundedWriter(bytes_max), True, 0
    try:
        for number in range(1, min(len(pages), pages_max) + 1):
            text = text_of(pages[number - 1], refusal)
            if text:
                is_scan = False
                output.write(f"[page {number}]\n{text}\n\n")
            broken += text is None
    except OutputFull:
        print(f"\n[the text is longer than {bytes_max:,} bytes; the rest is left out]")
        return
    if is_scan:
        sys.exit(EXIT_BROKEN if broken else 0)
    if broken:
        print(f"[pages that could not be read: {broken:,}]")
    if len(pages) > pages_max:
        print(f"[there are {len(pages):,} pages; the text of the first {pages_max:,} is here]")


def text_of(page: Any, refusal: type[Exception]) -> str | None:
    """Return a page's text, or None if the page is broken. `refusal` is the parser's own error class."""
    try:
        return _CONTROL.sub("", page.extract_text()).strip()
    except (refusal, *_PARSER_ERRORS):
        return None


def limit_resources(cpu_s: int, memory_bytes: int) -> None:
    """Limit the resources of this process."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def main(
    enter_sandbox: Callable[[str, int, str, str, list[str], list[str]], None],
    restrict: Callable[[list[str]], None],
) -> None:
    """Read the limits and the sandbox from the command line, enter the sandbox and extract the text."""
    pages_max, bytes_max, memory_max, cpu_s, mechanism, port_ruleset, identity, *paths = sys.argv[1:]
    end = paths.index("")
    content = sys.stdin.buffer.read()
    import pypdf  # Before the sandbox, which would hide it, and only here, so the server never loads it.

    if mechanism:
        enter_sandbox(mechanism, int(port_ruleset), identity, "/", paths[:end], paths[end + 1 :])
    if sys.platform == "linux":
        restrict([os.path.realpath(path) for path in sys.path])
    limit_resources(int(cpu_s), int(memory_max))
    try:
        extract(pypdf.PdfReader(BytesIO(content)), int(pages_max), int(bytes_max), pypdf.errors.PyPdfError)
    except MemoryError:
        sys.exit(EXIT_OUT_OF_MEMORY)
    except (pypdf.errors.FileNotDecryptedError, pypdf.errors.DependencyError):
        sys.exit(EXIT_ENCRYPTED)
