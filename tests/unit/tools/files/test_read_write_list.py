"""Reading, writing and listing: what comes back, what is refused, and that nobody sees half a file."""

import asyncio
import os
import threading
import time
from pathlib import Path

import pytest

from holdfast.domain.limits import (
    LIST_FILES_MAX,
    READ_FILE_BYTES_MAX,
    READ_FILE_LINES_MAX,
    READ_FILE_SCAN_BYTES_MAX,
    WRITE_FILE_BYTES_MAX,
)
from tests.support.tool_fixture import ToolHarness, bench

__all__ = ["bench"]

NAMES = [
    "plain.txt",
    "ünïcödé.txt",
    "日本語/ファイル.md",
    "with space and 'quotes\".txt",
    "-rf",
    "🙂",
    ".hidden",
]


def write_file(bench: ToolHarness, name: str, content: bytes) -> Path:
    bench.workspace.mkdir(exist_ok=True)
    path = bench.workspace / name
    path.write_bytes(content)
    return path


def test_each_file_tool_declares_its_effect(bench: ToolHarness) -> None:
    effects = {name: tool.effect for name, tool in bench.tools.items()}
    assert effects == {
        "shell": "unsafe",
        "read_file": "pure",
        "write_file": "idempotent",
        "edit_file": "idempotent",
        "list_files": "pure",
        "search_files": "pure",
        "ask_user": "pure",
    }
    assert all(asyncio.run(tool.is_finished(bench.prepare().id)) for tool in bench.tools.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_written_file_is_read_and_listed_under_its_name(bench: ToolHarness, name: str) -> None:
    content = "Größe\r\n\n€ ende ohne Umbruch"
    wrote = bench.call_sync("write_file", path=name, content=content)
    assert wrote.text == f"created `{name}`, {len(content.encode())} bytes"
    assert (bench.workspace / name).read_bytes() == content.encode()
    assert bench.call_sync("read_file", path=name).text == content
    assert (
        f"{name}  {len(content.encode())} bytes" in bench.call_sync("list_files", depth=3).text.splitlines()
    )


def test_a_file_is_read_in_parts(bench: ToolHarness) -> None:
    write_file(bench, "long.txt", b"".join(b"line %d\n" % n for n in range(1, 5001)))
    first = bench.call_sync("read_file", path="long.txt").text
    header, body = first.split("\n", 1)
    assert header == f"[lines 1-2000 of a file of 48,893 bytes; offset_lines={READ_FILE_LINES_MAX} reads on]"
    assert body.splitlines()[-1] == "line 2000"
    last = bench.call_sync("read_file", path="long.txt", offset_lines=4998, limit_lines=10).text
    assert last == "[lines 4999-5000 of a file of 48,893 bytes]\nline 4999\nline 5000\n"
    assert bench.call_sync("read_file", path="long.txt", offset_lines=5000).text == "[nothing follows]"
    assert (
        bench.call_sync("read_file", path="long.txt", offset_lines=5001).text
        == "`long.txt` has only 5,000 lines"
    )
    assert bench.call_sync("read_file", path="long.txt", limit_lines=2001).outcome == "failed"


def test_a_file_of_long_lines_can_be_read_completely(bench: ToolHarness) -> None:
    lines = [(b"%d" % n) * 30_000 + b"\n" for n in range(1, 10)]
    write_file(bench, "wide.txt", b"".join(lines))
    seen, offset = b"", 0
    while offset < len(lines):
        header, body = bench.call_sync("read_file", path="wide.txt", offset_lines=offset).text.split("\n", 1)
        assert len(body.encode()) <= READ_FILE_BYTES_MAX
        assert header.startswith(f"[lines {offset + 1}-")
        seen += body.encode()
        offset += body.count("\n")
    assert seen == b"".join(lines)


def test_an_overlong_line_is_cut_at_a_character_boundary(bench: ToolHarness) -> None:
    write_file(bench, "endless.txt", b"x" + "€".encode() * 200_000)
    header, body = bench.call_sync("read_file", path="endless.txt").text.split("\n", 1)
    assert "line 1 is cut after" in header
    assert set(body) == {"x", "€"}
    assert READ_FILE_BYTES_MAX - 3 < len(body.encode()) <= READ_FILE_BYTES_MAX


def test_reading_a_huge_file_is_bounded(bench: ToolHarness) -> None:
    path = write_file(bench, "huge.txt", b"first line\nsecond\n" + b"y" * 9000)
    os.truncate(path, 20_000_000_000)
    started = time.monotonic()
    assert "first line\nsecond" in bench.call_sync("read_file", path="huge.txt", limit_lines=2).text
    assert "binary" in bench.call_sync("read_file", path="huge.txt", offset_lines=2).text
    beyond = bench.call_sync("read_file", path="huge.txt", offset_lines=3).text
    assert f"{READ_FILE_SCAN_BYTES_MAX:,} bytes" in beyond
    assert time.monotonic() - started < 30


def test_binary_and_non_utf8_files_are_reported(bench: ToolHarness) -> None:
    write_file(bench, "image.png", b"\x89PNG\r\n\0\0\0")
    write_file(bench, "latin.txt", "Größe".encode("latin-1"))
    write_file(bench, "empty", b"")
    write_file(bench, "mark.txt", "\ufffd".encode())
    assert (
        bench.call_sync("read_file", path="image.png").text
        == "`image.png` is a binary file of 9 bytes, not text"
    )
    assert (
        bench.call_sync("read_file", path="latin.txt").text
        == "[not all of it is valid UTF-8]\nGr\ufffd\ufffde"
    )
    assert bench.call_sync("read_file", path="empty").text == "[the file is empty]"
    assert bench.call_sync("read_file", path="mark.txt").text == "\ufffd"


def test_missing_files_and_folders_are_reported(bench: ToolHarness) -> None:
    write_file(bench, "file", b"text")
    (bench.workspace / "folder").mkdir()
    folder = "`folder` is a folder; list_files shows what is in it"
    assert bench.call_sync("read_file", path="nothing").text == "there is no `nothing`"
    assert bench.call_sync("read_file", path="no/thing").text == "there is no `no/thing`"
    assert bench.call_sync("read_file", path="folder").text == folder
    assert bench.call_sync("read_file", path=".").outcome == "failed"
    assert bench.call_sync("read_file", path="file/x").text == "part of `file/x` is not a folder"
    assert bench.call_sync("list_files", path="file").text == "part of `file` is not a folder"
    assert bench.call_sync("list_files", path="nothing").text == "there is no `nothing`"
    assert bench.call_sync("write_file", path="folder", content="").text == "`folder` is a folder"
    assert bench.call_sync("write_file", path="", content="").outcome == "failed"
    assert bench.call_sync("write_file", path="file/x", content="").text == "part of `file/x` is not a folder"


def test_writing_keeps_the_mode_and_respects_write_protection(bench: ToolHarness) -> None:
    script = write_file(bench, "script.sh", b"old")
    script.chmod(0o750)
    assert (
        bench.call_sync("write_file", path="script.sh", content="new").text == "replaced `script.sh`, 3 bytes"
    )
    assert script.stat().st_mode & 0o7777 == 0o750
    script.chmod(0o444)
    assert (
        bench.call_sync("write_file", path="script.sh", content="x").text == "`script.sh` is write-protected"
    )
    assert script.read_text() == "new"
    bench.call_sync("write_file", path="new/folder/file", content="")
    umask = os.umask(0)
    os.umask(umask)
    assert (bench.workspace / "new/folder/file").stat().st_mode & 0o777 == 0o666 & ~umask
    assert (bench.workspace / "new/folder").stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_file_that_is_too_large_is_not_written(bench: ToolHarness) -> None:
    assert (
        bench.call_sync("write_file", path="a", content="ä" * (WRITE_FILE_BYTES_MAX // 2)).outcome == "done"
    )
    call = bench.call_sync("write_file", path="b", content="ä" * (WRITE_FILE_BYTES_MAX // 2) + "x")
    assert call.text == "the content is 1,000,001 bytes; write_file takes 1,000,000"
    assert os.listdir(bench.workspace) == ["a"]  # noqa: PTH208


def test_readers_never_see_a_partial_write(bench: ToolHarness) -> None:
    write_file(bench, "shared", b"0" * 300_000)
    done, halves, reads = threading.Event(), [], 0

    def read() -> None:
        nonlocal reads
        while not done.is_set():
            content = (bench.workspace / "shared").read_bytes()
            reads += 1
            if len(content) != 300_000 or len(set(content)) != 1:
                halves.append(len(content))

    async def write() -> None:
        calls = (bench.call("write_file", path="shared", content=str(n % 10) * 300_000) for n in range(60))
        assert {call.outcome for call in await asyncio.gather(*calls)} == {"done"}

    reader = threading.Thread(target=read)
    reader.start()
    asyncio.run(write())
    done.set()
    reader.join()
    assert halves == []
    assert reads > 10
    assert os.listdir(bench.workspace) == ["shared"]  # noqa: PTH208


def test_concurrent_writers_create_missing_folders(bench: ToolHarness) -> None:
    async def write() -> None:
        calls = (bench.call("write_file", path=f"a/b/c/{n}", content="x") for n in range(30))
        assert {call.outcome for call in await asyncio.gather(*calls)} == {"done"}

    asyncio.run(write())
    assert len(list((bench.workspace / "a/b/c").iterdir())) == 30


def test_a_failed_write_leaves_the_old_file_and_no_draft(
    bench: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_file(bench, "kept", b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    call = bench.call_sync("write_file", path="kept", content="new")
    assert (call.outcome, call.text) == ("failed", "the disk is full")
    assert (bench.workspace / "kept").read_text() == "old"
    assert os.listdir(bench.workspace) == ["kept"]  # noqa: PTH208


def test_cancelling_a_write_waits_for_its_end(bench: ToolHarness) -> None:
    async def cancelled() -> None:
        call = bench.prepare(path="file", content="x" * WRITE_FILE_BYTES_MAX)
        writing = asyncio.create_task(bench.tools["write_file"].run(call.tool_run()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert os.listdir(bench.workspace) == ["file"]  # noqa: PTH208
        assert (bench.workspace / "file").stat().st_size == WRITE_FILE_BYTES_MAX

    asyncio.run(cancelled())


def test_a_listing_is_sorted_and_shows_entry_types(bench: ToolHarness) -> None:
    write_file(bench, "b.txt", b"12345")
    write_file(bench, ".env", b"")
    (bench.workspace / "a" / "inner").mkdir(parents=True)
    write_file(bench, "a/inner/z", b"1" * 1234)
    (bench.workspace / "link").symlink_to("b.txt")
    top = [".env  0 bytes", "a/", "b.txt  5 bytes", "link -> b.txt"]
    assert bench.call_sync("list_files").text.splitlines() == top
    deep = [".env  0 bytes", "a/", "a/inner/", "a/inner/z  1,234 bytes", "b.txt  5 bytes", "link -> b.txt"]
    assert bench.call_sync("list_files", depth=3).text.splitlines() == deep
    assert bench.call_sync("list_files", path="a").text == "inner/"
    assert bench.call_sync("list_files", path="a/inner/").text == "z  1,234 bytes"


def test_an_empty_workspace_is_reported(bench: ToolHarness) -> None:
    assert bench.call_sync("list_files").text == "[the folder is empty]"
    assert bench.workspace.stat().st_mode & 0o777 == 0o700


def test_a_long_listing_is_truncated_with_a_note(bench: ToolHarness) -> None:
    (bench.workspace / "many").mkdir(parents=True)
    for n in range(LIST_FILES_MAX + 50):
        (bench.workspace / "many" / f"{n:05}").touch()
    lines = bench.call_sync("list_files", depth=2).text.splitlines()
    assert len(lines) == LIST_FILES_MAX + 1
    assert lines[-1] == "[51 more in `many/`]"
    assert lines[-2] == f"many/{LIST_FILES_MAX - 2:05}  0 bytes"


def test_names_cannot_forge_a_listing(bench: ToolHarness) -> None:
    write_file(bench, "a\nfake  9 bytes", b"")
    write_file(bench, "esc\x1b[31m", b"")
    lines = bench.call_sync("list_files").text.splitlines()
    assert lines == ["a\\nfake  9 bytes  0 bytes", "esc\\x1b[31m  0 bytes"]


def test_names_that_are_not_unicode_are_shown_as_escapes(bench: ToolHarness) -> None:
    bench.workspace.mkdir()
    try:
        Path(os.fsdecode(os.fsencode(bench.workspace) + b"/b\xff")).touch()
    except OSError:
        pytest.skip("this file system takes only Unicode names")
    assert bench.call_sync("list_files").text == "b\\xff  0 bytes"


def test_file_tools_do_not_enter_system_folders(bench: ToolHarness) -> None:
    bench.workspace = Path("/")
    for call in (
        bench.call_sync("read_file", path="proc/self/status"),
        bench.call_sync("read_file", path="/sys/kernel/notes"),
        bench.call_sync("list_files", path="dev"),
    ):
        assert (call.outcome, "a folder of the system itself" in call.text) == ("failed", True), call.text
    bench.workspace = Path("/proc/self")
    for call in (bench.call_sync("read_file", path="status"), bench.shell("true")):
        assert (call.outcome, "a folder of the system itself" in call.text) == ("failed", True), call.text
