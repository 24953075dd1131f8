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
from holdfast.tools.files.pdf_text import BROKEN, BULKY, LOCKED, NO_TEXT, SLOW, TOO_LARGE, PdfTexts
from holdfast.tools.sandbox import linux_sandbox
from holdfast.tools.sandbox.sandbox import NO_WALLS, confine
from tests.support.sample_files import PDF, pdf, stream, words, written


async def read(content: bytes, pdfs: PdfTexts | None = None) -> FileContent:
    return await (pdfs or PdfTexts(NO_WALLS)).read(sha256(content).hexdigest(), content)


async def test_the_text_of_each_page_stands_below_its_number() -> None:
    found = await read(pdf(words("Hello there."), words(""), words("The end\x01.")))
    assert found == FileContent("text", "[page 1]\nHello there.\n\n[page 3]\nThe end.\n\n")


async def test_behind_the_walls_of_commands_it_reads_the_same(tmp_path: Path) -> None:
    confinement = confine(tmp_path, "127.0.0.1", 9)
    found = await read(pdf(words("Walled in.")), PdfTexts(confinement.walls))
    assert found == FileContent("text", "[page 1]\nWalled in.\n\n")


async def test_where_the_walls_cannot_be_put_up_nothing_is_read(tmp_path: Path) -> None:
    moved = confine(tmp_path, "127.0.0.1", 9).walls._replace(identity="0:0")
    assert moved.way, "there are walls here"
    assert await read(pdf(words("Not read.")), PdfTexts(moved)) == BROKEN


async def test_the_server_does_not_load_the_parser() -> None:
    assert (await read(pdf(words("Read elsewhere.")))).kind == "text"
    assert "pypdf" not in sys.modules


async def test_of_many_pages_the_first_are_read_and_it_is_said() -> None:
    found = await read(pdf(*(words(f"Leaf {n}") for n in range(1, PDF_PAGES_MAX + 2))))
    assert f"Leaf {PDF_PAGES_MAX}\n" in found.body
    assert f"Leaf {PDF_PAGES_MAX + 1}" not in found.body
    last = f"[there are {PDF_PAGES_MAX + 1} pages; the text of the first {PDF_PAGES_MAX} is here]\n"
    assert found.body.endswith(last)


async def test_long_text_is_cut_and_it_is_said() -> None:
    leaf = words("word " * 2_000)
    found = await read(pdf(*[leaf] * (PDF_TEXT_BYTES_MAX // 10_000 + 20)))
    assert found.kind == "text"
    assert PDF_TEXT_BYTES_MAX <= len(found.body) < PDF_TEXT_BYTES_MAX + 200
    assert found.body.endswith("[the text is longer than 1,000,000 bytes; the rest is left out]\n")


async def test_a_broken_page_costs_only_itself() -> None:
    bad = stream(b"not deflated", b"/Filter /NoSuchFilter")
    found = await read(pdf(words("First."), bad, words("Third.")))
    assert "First." in found.body and "Third." in found.body
    assert found.body.endswith("[pages that could not be read: 1]\n")


def encrypted() -> bytes:
    """Locked with a password that is not the empty one."""
    lock = b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <%b> /U <%b> >>" % (b"41" * 32, b"42" * 32)
    return pdf(words("Secret."), trailer=b"/ID [<00> <00>] /Encrypt " + lock)


def looping() -> bytes:
    """A tree of pages that holds itself."""
    return written(
        b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 1000000 >>"
    )


def bomb(size: int = 500_000_000) -> bytes:
    packed = zlib.compress(bytes(size), 9)
    return pdf(stream(packed, b"/Filter /FlateDecode"))


def endless(pages: int = 200) -> bytes:
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
        (encrypted(), LOCKED),
        (PDF, BROKEN),
        (b"%PDF-1.4 and then nothing of the kind", BROKEN),
        (looping(), BROKEN),
        (bomb(), BROKEN),
        (written(b"<< /Type /Catalog /Pages 99 0 R >>"), BROKEN),
        (b"%PDF-" + bytes(FILE_BYTES_MAX), TOO_LARGE),
    ],
    ids=["empty", "scan", "encrypted", "nothing", "rubbish", "loop", "bomb", "no pages", "large"],
)
async def test_what_cannot_be_read_becomes_a_note(content: bytes, note: FileContent) -> None:
    assert await read(content) == note


async def test_a_wrong_table_of_places_does_not_keep_the_text_away() -> None:
    content = pdf(words("Found all the same."))
    table = content.index(b"xref\n")
    damaged = content[:table] + content[table:].replace(b"00000 n", b"00007 n").replace(b"000000", b"999999")
    assert "Found all the same." in (await read(damaged)).body


async def test_what_takes_too_long_is_stopped() -> None:
    began = time.monotonic()
    assert await read(endless()) == SLOW
    assert time.monotonic() - began >= 10


async def test_what_takes_too_much_memory_is_stopped() -> None:
    greedy = bomb(70_000_000)
    assert await read(greedy) == NO_TEXT
    assert await read(greedy, PdfTexts(NO_WALLS, memory_bytes_max=100_000_000)) == BULKY


class Stopped(PdfTexts):
    """Stops the program as soon as it has started, so that it uses no processor time."""

    async def _started(self) -> asyncio.subprocess.Process:
        process = await super()._started()
        process.send_signal(signal.SIGSTOP)
        return process


async def test_a_program_that_stands_still_is_ended_by_the_clock() -> None:
    async with asyncio.timeout(60):
        assert await read(endless(), Stopped(NO_WALLS, seconds_max=1.0)) == SLOW


async def test_the_event_loop_goes_on_meanwhile() -> None:
    reading = asyncio.create_task(read(endless(), PdfTexts(NO_WALLS, seconds_max=1.0)))
    steps = 0
    while not reading.done():
        await asyncio.sleep(0.01)
        steps += 1
    assert steps > 3


async def test_only_so_many_are_read_at_the_same_time() -> None:
    pdfs, began = PdfTexts(NO_WALLS, seconds_max=1.0), time.monotonic()
    many = [endless(200 + n) for n in range(PDFS_AT_ONCE_MAX + 1)]
    assert await asyncio.gather(*(read(each, pdfs) for each in many)) == [SLOW] * len(many)
    assert time.monotonic() - began >= 2.0, "the last one waits for another to end"


async def test_a_reading_that_is_cancelled_frees_its_place() -> None:
    pdfs = PdfTexts(NO_WALLS)
    content = endless()
    leaving = [asyncio.create_task(read(content, pdfs)) for _ in range(PDFS_AT_ONCE_MAX)]
    await asyncio.sleep(0.3)
    for each in leaving:
        each.cancel()
    ended = await asyncio.gather(*leaving, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ended)
    assert (await read(pdf(words("Next.")), pdfs)).kind == "text"


async def test_a_file_that_took_too_long_is_read_again_after_a_while() -> None:
    now = [0.0]
    pdfs = PdfTexts(NO_WALLS, seconds_max=1.0, now=lambda: now[0])
    content = endless()
    blob = sha256(content).hexdigest()
    assert await read(content, pdfs) == SLOW == pdfs.kept(blob)
    now[0] = PDF_RETRY_S
    assert pdfs.kept(blob) is None
    whole = pdf(words("Whole."))
    found = await read(whole, pdfs)
    now[0] = 1e9
    assert pdfs.kept(sha256(whole).hexdigest()) is found


async def test_a_file_is_read_once_and_what_is_held_is_bounded() -> None:
    pdfs = PdfTexts(NO_WALLS)
    content = pdf(words("Kept."))
    found = await read(content, pdfs)
    assert await read(content, pdfs) is found
    leaf = words("word " * 2_000)
    for n in range(PDF_CACHE_BYTES_MAX // PDF_TEXT_BYTES_MAX + 1):
        await read(pdf(words(str(n)), *[leaf] * (PDF_TEXT_BYTES_MAX // 10_000 + 20)), pdfs)
    assert pdfs.kept(sha256(content).hexdigest()) is None


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
def test_the_program_can_do_nothing_but_read_itself(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = str(Path(linux_sandbox.__file__).parent)
    command = [sys.executable, "-I", "-S", "-c", RESTRICTED, folder, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.stdout == "end\n", ended.stderr
