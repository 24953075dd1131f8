"""The text of PDF files: read in a process of its own, within limits, whatever a file holds."""

import asyncio
import signal
import subprocess
import sys
import time
import zlib
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast.domain.context.context import FileContent
from holdfast.domain.limits import (
    FILE_BYTES_MAX,
    PDF_CACHE_BYTES_MAX,
    PDF_PAGES_MAX,
    PDF_RETRY_S,
    PDF_TEXT_BYTES_MAX,
    PDFS_AT_ONCE_MAX,
)
from holdfast.tools.files.pdf_text import (
    NO_TEXT,
    OUT_OF_MEMORY,
    PASSWORD_PROTECTED,
    TIMED_OUT,
    TOO_LARGE,
    UNREADABLE,
    PdfTextExtractor,
)
from holdfast.tools.sandbox import linux_sandbox
from holdfast.tools.sandbox.sandbox import NO_SANDBOX, detect_sandbox
from tests.support.sample_files import PDF, pdf, stream, words, written


async def read(content: bytes, pdfs: PdfTextExtractor | None = None) -> FileContent:
    return await (pdfs or PdfTextExtractor(NO_SANDBOX)).read(sha256(content).hexdigest(), content)


async def test_each_page_text_follows_its_number() -> None:
    found = await read(pdf(words("Hello there."), words(""), words("The end\x01.")))
    assert found == FileContent("text", "[page 1]\nHello there.\n\n[page 3]\nThe end.\n\n")


async def test_pdf_extraction_works_in_the_sandbox(tmp_path: Path) -> None:
    confinement = detect_sandbox(tmp_path, "127.0.0.1", 9)
    found = await read(pdf(words("Walled in.")), PdfTextExtractor(confinement.sandbox))
    assert found == FileContent("text", "[page 1]\nWalled in.\n\n")


async def test_without_the_required_sandbox_no_pdf_is_read(tmp_path: Path) -> None:
    moved = detect_sandbox(tmp_path, "127.0.0.1", 9).sandbox._replace(identity="0:0")
    assert moved.mechanism, "there are walls here"
    assert await read(pdf(words("Not read.")), PdfTextExtractor(moved)) == UNREADABLE


async def test_the_server_does_not_load_the_parser() -> None:
    assert (await read(pdf(words("Read elsewhere.")))).kind == "text"
    assert "pypdf" not in sys.modules


async def test_only_the_first_pages_are_read_with_a_note() -> None:
    found = await read(pdf(*(words(f"Leaf {n}") for n in range(1, PDF_PAGES_MAX + 2))))
    assert f"Leaf {PDF_PAGES_MAX}\n" in found.body
    assert f"Leaf {PDF_PAGES_MAX + 1}" not in found.body
    last = f"[there are {PDF_PAGES_MAX + 1} pages; the text of the first {PDF_PAGES_MAX} is here]\n"
    assert found.body.endswith(last)


async def test_long_pdf_text_is_truncated_with_a_note() -> None:
    leaf = words("word " * 2_000)
    found = await read(pdf(*[leaf] * (PDF_TEXT_BYTES_MAX // 10_000 + 20)))
    assert found.kind == "text"
    assert PDF_TEXT_BYTES_MAX <= len(found.body) < PDF_TEXT_BYTES_MAX + 200
    assert found.body.endswith("[the text is longer than 1,000,000 bytes; the rest is left out]\n")


async def test_a_broken_page_does_not_lose_the_others() -> None:
    bad = stream(b"not deflated", b"/Filter /NoSuchFilter")
    found = await read(pdf(words("First."), bad, words("Third.")))
    assert "First." in found.body and "Third." in found.body
    assert found.body.endswith("[pages that could not be read: 1]\n")


def encrypted() -> bytes:
    """Locked with a password that is not the empty one."""
    lock = b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%b> /U <%b> >>" % (b"41" * 32, b"42" * 32)
    return pdf(words("Secret."), trailer=b"/ID [<00> <00>] /Encrypt " + lock)


def cyclic_pages() -> bytes:
    """A tree of pages that holds itself."""
    return written(
        b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000000 >>"
    )


def decompression_bomb(size: int = 500_000_000) -> bytes:
    packed = zlib.compress(bytes(size), 9)
    return pdf(stream(packed, b"/Filter /FlateDecode"))


def slow_pages(pages: int = 200) -> bytes:
    """Return a file without text that takes minutes to read: each page shows 200,000 empty strings."""
    packed = zlib.compress(b"BT /F1 12 Tf " + b"() Tj " * 200_000 + b"ET", 9)
    return pdf(
        *[stream(packed, b"/Filter /FlateDecode")] + [stream(b"")] * (pages - 1), page=b"/Contents 5 0 R"
    )


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (pdf(words("")), NO_TEXT),
        (pdf(*[words("")] * (PDF_PAGES_MAX + 1)), NO_TEXT),
        (encrypted(), PASSWORD_PROTECTED),
        (PDF, UNREADABLE),
        (b"%PDF-1.4 and then nothing of the kind", UNREADABLE),
        (cyclic_pages(), UNREADABLE),
        (decompression_bomb(), UNREADABLE),
        (written(b"<< /Type /Catalog /Pages 99 0 R >>"), UNREADABLE),
        (b"%PDF-" + bytes(FILE_BYTES_MAX), TOO_LARGE),
    ],
    ids=["empty", "scan", "encrypted", "nothing", "rubbish", "loop", "bomb", "no pages", "large"],
)
async def test_an_unreadable_pdf_becomes_a_note(content: bytes, note: FileContent) -> None:
    assert await read(content) == note


async def test_a_wrong_cross_reference_table_is_tolerated() -> None:
    content = pdf(words("Found all the same."))
    table = content.index(b"xref\n")
    damaged = content[:table] + content[table:].replace(b"00000 n", b"00007 n").replace(b"000000", b"999999")
    assert "Found all the same." in (await read(damaged)).body


async def test_a_slow_extraction_is_stopped() -> None:
    began = time.monotonic()
    assert await read(slow_pages()) == TIMED_OUT
    assert time.monotonic() - began >= 10


async def test_an_extraction_over_the_memory_limit_is_stopped() -> None:
    greedy = decompression_bomb(70_000_000)
    assert await read(greedy) == NO_TEXT
    assert await read(greedy, PdfTextExtractor(NO_SANDBOX, memory_bytes_max=100_000_000)) == OUT_OF_MEMORY


class StalledExtractor(PdfTextExtractor):
    """Stops the program as soon as it has started, so that it uses no processor time."""

    async def _start_process(self) -> asyncio.subprocess.Process:
        process = await super()._start_process()
        process.send_signal(signal.SIGSTOP)
        return process


async def test_a_stalled_extraction_times_out() -> None:
    async with asyncio.timeout(60):
        assert await read(slow_pages(), StalledExtractor(NO_SANDBOX, seconds_max=1.0)) == TIMED_OUT


async def test_extraction_does_not_block_the_event_loop() -> None:
    reading = asyncio.create_task(read(slow_pages(), PdfTextExtractor(NO_SANDBOX, seconds_max=1.0)))
    steps = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        steps += 1
    assert steps > 3


async def test_concurrent_extractions_are_limited() -> None:
    pdfs, began = PdfTextExtractor(NO_SANDBOX, seconds_max=1.0), time.monotonic()
    many = [slow_pages(200 + n) for n in range(PDFS_AT_ONCE_MAX + 1)]
    assert await asyncio.gather(*(read(each, pdfs) for each in many)) == [TIMED_OUT] * len(many)
    assert time.monotonic() - began >= 2.0, "the last one waits for another to end"


async def test_a_cancelled_extraction_frees_its_slot() -> None:
    pdfs = PdfTextExtractor(NO_SANDBOX)
    content = slow_pages()
    leaving = [asyncio.create_task(read(content, pdfs)) for _ in range(PDFS_AT_ONCE_MAX)]
    await asyncio.sleep(0.3)
    for each in leaving:
        each.cancel()
    ended = await asyncio.gather(*leaving, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert (await read(pdf(words("Next.")), pdfs)).kind == "text"


async def test_a_timed_out_extraction_is_retried_later() -> None:
    now = [0.0]
    pdfs = PdfTextExtractor(NO_SANDBOX, seconds_max=1.0, now=lambda: now[0])
    content = slow_pages()
    blob = sha256(content).hexdigest()
    assert await read(content, pdfs) == TIMED_OUT == pdfs.cached(blob)
    now[0] = PDF_RETRY_S
    assert pdfs.cached(blob) is None
    whole = pdf(words("Whole."))
    found = await read(whole, pdfs)
    now[0] = 1e9
    assert pdfs.cached(sha256(whole).hexdigest()) is found


async def test_extractions_are_cached_within_a_size_limit() -> None:
    pdfs = PdfTextExtractor(NO_SANDBOX)
    content = pdf(words("Kept."))
    found = await read(content, pdfs)
    assert await read(content, pdfs) is found
    leaf = words("word " * 2_000)
    for n in range(PDF_CACHE_BYTES_MAX // PDF_TEXT_BYTES_MAX + 1):
        await read(pdf(words(str(n)), *[leaf] * (PDF_TEXT_BYTES_MAX // 10_000 + 20)), pdfs)
    assert pdfs.cached(sha256(content).hexdigest()) is None


RESTRICTED = """
import os, socket, subprocess, sys
sys.path.append(sys.argv[1])
import linux_sandbox
folder = sys.argv[2]
linux_sandbox.restrict_to_reading([os.path.realpath(path) for path in sys.path])
def attempt(name, what):
    try:
        what()
    except OSError:
        return
    print(name)
attempt("write", lambda: open(folder + "/new", "w"))
attempt("read", lambda: open(folder + "/secret"))
attempt("list", lambda: os.listdir(folder))
attempt("internet", lambda: socket.socket())
attempt("neighbours", lambda: socket.socket(socket.AF_UNIX))
attempt("program", lambda: subprocess.run(["/bin/true"]))
attempt("process", os.fork)
attempt("user", lambda: os.unshare(0x10000000) if hasattr(os, "unshare") else socket.socket())
import encodings.cp500
print("end")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock and seccomp are Linux's")
def test_the_extraction_process_can_only_read_its_own_program(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = str(Path(linux_sandbox.__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", RESTRICTED, folder, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout == "end\n", ended.stderr
