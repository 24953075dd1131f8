"""Extract the text of PDF files in a sandboxed process, for models that accept no PDF files."""

import asyncio
import math
import os
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

import msgspec

from holdfast.aio.finish import run_to_completion
from holdfast.domain.context.context import FileContent
from holdfast.domain.limits import (
    FILE_BYTES_MAX,
    PDF_CACHE_BYTES_MAX,
    PDF_MEMORY_BYTES_MAX,
    PDF_PAGES_MAX,
    PDF_RETRY_S,
    PDF_S_MAX,
    PDF_TEXT_BYTES_MAX,
    PDFS_AT_ONCE_MAX,
)
from holdfast.tools.files.pdf_program import EXIT_BROKEN as BROKEN_FILE
from holdfast.tools.files.pdf_program import EXIT_ENCRYPTED, EXIT_OUT_OF_MEMORY
from holdfast.tools.sandbox import linux_sandbox
from holdfast.tools.sandbox.sandbox import Sandbox

_PROGRAM = (
    "import sys; sys.path += sys.argv[1:4]; del sys.argv[1:4]; import linux_sandbox, pdf_program;"
    "pdf_program.main(linux_sandbox.enter_sandbox, linux_sandbox.restrict_to_reading)"
)
_FOLDERS = (Path(__file__).parent, Path(linux_sandbox.__file__).parent)
_CHUNK_BYTES = 65_536
_FINAL_EXIT_CODES = (0, BROKEN_FILE, EXIT_ENCRYPTED, EXIT_OUT_OF_MEMORY)
"""Exit codes of a program that ended by itself."""
_LINE_BYTES_MAX = 200
"""Room for the note on what is left out."""
TOO_LARGE = FileContent("note", f"is a PDF of more than {FILE_BYTES_MAX // 1_000_000} MB, and was not read")
NO_TEXT = FileContent("note", "is a PDF without text, probably a scan")
PASSWORD_PROTECTED = FileContent("note", "is a PDF with a password, and was not read")
UNREADABLE = FileContent("note", "is a PDF that could not be read")
TIMED_OUT = FileContent("note", f"is a PDF that could not be read in {PDF_S_MAX} s")
OUT_OF_MEMORY = FileContent("note", "is a PDF that takes too much memory to read")


class _CacheEntry(msgspec.Struct, frozen=True):
    content: FileContent
    expires_at: float

    @property
    def size_bytes(self) -> int:
        return len(self.content.body.encode())


class PdfTextExtractor:
    """Extract and cache the text of PDF files. Belongs to one event loop."""

    def __init__(
        self,
        sandbox: Sandbox,
        seconds_max: float = PDF_S_MAX,
        memory_bytes_max: int = PDF_MEMORY_BYTES_MAX,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._sandbox = sandbox
        self._seconds_max = seconds_max
        self._memory_bytes_max = memory_bytes_max
        self._now = now
        self._slots = asyncio.Semaphore(PDFS_AT_ONCE_MAX)
        self._cache: OrderedDict[str, _CacheEntry] = OrderedDict()
        self._cache_bytes = 0

    def cached(self, blob: str) -> FileContent | None:
        """Return the text of this file if it is in the cache."""
        found = self._cache.get(blob)
        if found is None or found.expires_at <= self._now():
            return None
        self._cache.move_to_end(blob)
        return found.content

    async def read(self, blob: str, content: bytes) -> FileContent:
        """Return the text of a PDF file, or a note on why there is none. Never raises."""
        if len(content) > FILE_BYTES_MAX:
            return TOO_LARGE
        async with self._slots:
            found = self.cached(blob)
            if found is None:
                found, is_final = await self._extract(content)
                self._add_to_cache(
                    blob, _CacheEntry(found, math.inf if is_final else self._now() + PDF_RETRY_S)
                )
        return found

    def _add_to_cache(self, blob: str, entry: _CacheEntry) -> None:
        before = self._cache.pop(blob, None)
        self._cache[blob] = entry
        self._cache_bytes += entry.size_bytes - (before.size_bytes if before is not None else 0)
        while self._cache_bytes > PDF_CACHE_BYTES_MAX:
            _, gone = self._cache.popitem(last=False)
            self._cache_bytes -= gone.size_bytes

    async def _extract(self, content: bytes) -> tuple[FileContent, bool]:
        """Return the content for the model, and whether another try would give the same."""
        try:
            process = await self._start_process()
        except OSError:
            return UNREADABLE, False
        output, is_late = bytearray(), False
        try:
            assert process.stdin is not None and process.stdout is not None, "both were asked for"
            async with asyncio.timeout(self._seconds_max):
                with suppress(ConnectionError):  # The program may end before it has read everything.
                    process.stdin.write(content)
                    await process.stdin.drain()
                process.stdin.close()
                while chunk := await process.stdout.read(_CHUNK_BYTES):
                    output += chunk[: PDF_TEXT_BYTES_MAX + _LINE_BYTES_MAX - len(output)]
                await process.wait()
        except TimeoutError:
            is_late = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await run_to_completion(process.wait())
        found = _content_of(bytes(output).decode("utf-8", "replace"), None if is_late else process.returncode)
        return found, not is_late and process.returncode in _FINAL_EXIT_CODES

    async def _start_process(self) -> asyncio.subprocess.Process:
        """Start the program. Raises OSError."""
        found = find_spec("pypdf")
        if found is None or found.origin is None:
            raise FileNotFoundError("pypdf is not installed")
        limits = (PDF_PAGES_MAX, PDF_TEXT_BYTES_MAX, self._memory_bytes_max, PDF_S_MAX + 1)
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-W", "ignore", "-c", _PROGRAM, str(Path(found.origin).parents[1]),
            *map(str, (*_FOLDERS, *limits)), *self._sandbox.to_args(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd="/",
            env={},
            pass_fds=self._sandbox.inherited_fds(),
            start_new_session=True,
        )  # fmt: skip


def _content_of(text: str, code: int | None) -> FileContent:
    """Return the content for the model. Without a code the program ran out of time."""
    if text:
        return FileContent("text", text if code == 0 else f"{text}\n[the rest could not be read]")
    notes = {
        0: NO_TEXT,
        EXIT_ENCRYPTED: PASSWORD_PROTECTED,
        EXIT_OUT_OF_MEMORY: OUT_OF_MEMORY,
        None: TIMED_OUT,
        -signal.SIGXCPU: TIMED_OUT,
    }
    return notes.get(code, UNREADABLE)
