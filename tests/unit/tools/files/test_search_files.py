"""Searching: what is found and how it is told, what is passed over, and that no pattern holds anybody up."""

import asyncio
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast.domain.limits import (
    PATH_DEPTH_MAX,
    SEARCH_FILES_BYTES_MAX,
    SEARCH_FILES_FILE_BYTES_MAX,
    SEARCH_FILES_LINE_CHARS_MAX,
)
from holdfast.tools.files.search_files import SearchFilesTool
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from tests.support.tool_fixture import RecordedCall, ToolHarness, bench

__all__ = ["bench"]


def write_file(bench: ToolHarness, name: str, content: str | bytes) -> Path:
    path = bench.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def search(bench: ToolHarness, pattern: str, **more: object) -> list[str]:
    call = bench.call_sync("search_files", pattern=pattern, **more)
    assert call.outcome == "done", call.text
    return call.text.splitlines()


def test_matches_have_line_numbers_and_are_sorted_by_path(bench: ToolHarness) -> None:
    write_file(bench, "b.py", "x = 1\ndef go():\n    pass\n")
    write_file(bench, "a/c.txt", "no\ngo go\r\n")
    write_file(bench, "a/ö.txt", "Go\n")
    assert search(bench, r"\bgo\b") == ["a/c.txt:2: go go", "b.py:2: def go():"]
    assert search(bench, "GO", case_sensitive=False, path="a") == ["a/c.txt:2: go go", "a/ö.txt:1: Go"]
    assert search(bench, "go", path="b.py") == ["b.py:2: def go():"]
    assert search(bench, "go", glob="*.py") == ["b.py:2: def go():"]
    assert search(bench, "go", glob="a/*.{md,txt}") == ["a/c.txt:2: go go"]
    assert search(bench, "nowhere") == ["[nothing was found]"]


def test_context_lines_are_shown_once(bench: ToolHarness) -> None:
    write_file(bench, "f", "1\n2 hit\n3 hit\n4\n5\n6\n7\n8 hit\n")
    assert search(bench, "hit", context_lines=1) == [
        "f-1- 1", "f:2: 2 hit", "f:3: 3 hit", "f-4- 4", "--", "f-7- 7", "f:8: 8 hit",
    ]  # fmt: skip
    assert search(bench, "hit", context_lines=3) == [
        "f-1- 1", "f:2: 2 hit", "f:3: 3 hit", "f-4- 4", "f-5- 5", "f-6- 6", "f-7- 7", "f:8: 8 hit",
    ]  # fmt: skip


def test_names_are_searched_too(bench: ToolHarness) -> None:
    for name in ("src/main.py", "src/main/x.txt", "README.md"):
        write_file(bench, name, "main\n")
    assert search(bench, "main", names=True) == ["src/main/", "src/main/x.txt", "src/main.py"]
    assert search(bench, "main", names=True, glob="*.py") == ["src/main.py"]


def test_binary_large_git_and_ignored_files_are_skipped(bench: ToolHarness) -> None:
    write_file(bench, ".gitignore", "# comment\nbuild/\n*.log\n!keep.log\n/only_top\n")
    write_file(bench, "sub/.gitignore", "own.txt\n")
    for name in ("build/a", "x.log", "keep.log", "only_top", "sub/only_top", "sub/own.txt", "own.txt",
                 ".git/config", ".env", "sub/build/deep/a"):  # fmt: skip
        write_file(bench, name, "hit\n")
    write_file(bench, "binary", b"hit\0\n")
    write_file(bench, "large", b"hit\n" + b"x" * SEARCH_FILES_FILE_BYTES_MAX)
    size = f"{SEARCH_FILES_FILE_BYTES_MAX:,}"
    assert search(bench, "hit") == [
        ".env:1: hit", "keep.log:1: hit", "own.txt:1: hit", "sub/only_top:1: hit",
        f"[files larger than {size} bytes were passed over: 1]",
    ]  # fmt: skip
    assert "sub/own.txt:1: hit" in search(bench, "hit", ignored=True)
    assert search(bench, "hit", path="sub") == ["sub/only_top:1: hit"], "what is above counts as well"


def test_a_search_never_leaves_the_workspace(bench: ToolHarness) -> None:
    (bench.folder / "outside").mkdir()
    (bench.folder / "outside/file").write_text("hit\n")
    write_file(bench, "in/file", "hit\n")
    (bench.workspace / "in/link").symlink_to(bench.folder / "outside/file")
    (bench.workspace / "in/folder").symlink_to(bench.folder / "outside")
    os.mkfifo(bench.workspace / "in/pipe")
    assert search(bench, "hit") == ["in/file:1: hit"]
    for path in ("../outside", "in/folder", "in/link", "/proc/self", str(bench.folder / "outside")):
        call = bench.call_sync("search_files", pattern="hit", path=path)
        assert call.outcome == "failed" and "outside the workspace" in call.text, call.text


def test_the_data_folder_is_not_searched_even_inside_the_workspace(tmp_path: Path) -> None:
    bench = ToolHarness(tmp_path, store=tmp_path / "workspace" / "data")
    write_file(bench, "data/token", "hit\n")
    write_file(bench, "file", "hit\n")
    assert search(bench, "hit") == ["file:1: hit"]
    assert bench.call_sync("search_files", pattern="hit", path="data").outcome == "failed"


@pytest.mark.parametrize("pattern", ["(", "*", "a{99999999999}", "(?P<x", "", "x" * 1001, "(?<=a*)b"])
def test_an_invalid_pattern_is_refused(bench: ToolHarness, pattern: str) -> None:
    write_file(bench, "f", "x\n")
    call = bench.call_sync("search_files", pattern=pattern)
    assert call.outcome == "failed" and "pattern" in call.text, call.text


@pytest.mark.parametrize("line", ["*" * 400 + "y", "*?" * 60 + "y", "*a" * 60 + "y", "**/" * 60 + "y"])
def test_a_hostile_gitignore_cannot_stall_a_search(bench: ToolHarness, line: str) -> None:
    write_file(bench, ".gitignore", f"{line}\n")
    write_file(bench, "a" * 200, "hit\n")
    write_file(bench, "/".join("a" * 40), "hit\n")
    call, _ = search_with_timeout(bench, 20.0, "hit")
    assert len(call.text.splitlines()) == 2 and "stopped" not in call.text, call.text


@pytest.mark.parametrize(
    ("glob", "fits", "does_not"),
    [
        ("*a*b", "xaxb", "xbxa"),
        ("*a*ab", "aab", "aba"),
        ("a*b*c*d", "a1b2b3c4c5d", "abcde"),
        ("*.t?t*", "x.t.txt", "x.tt"),
        ("x/*a*b*", "x/1a2b3", "x/1b2a"),
        ("x/**/*a*", "x/y/z/1a2", "y/x/1a"),
        ("***/*a", "x/ya", "x/y"),
        ("*[ab]*[!ab]", "1a2", "1ab"),
        ("*.{a*,*b}*c", "x.a1c", "x.c"),
    ],
)
def test_glob_stars_match_as_documented(bench: ToolHarness, glob: str, fits: str, does_not: str) -> None:
    write_file(bench, fits, "hit\n")
    write_file(bench, does_not, "hit\n")
    assert search(bench, "hit", glob=glob) == [f"{fits}:1: hit"]


def test_files_that_could_not_be_searched_are_reported(bench: ToolHarness) -> None:
    write_file(bench, "binary", b"hit\0")
    write_file(bench, "deep/" * PATH_DEPTH_MAX + "deep/file", "hit\n")
    os.mkfifo(bench.workspace / "pipe")
    for path in ("binary", "pipe"):
        assert search(bench, "hit", path=path) == ["[it is no text: nothing was looked for in it]"]
    assert search(bench, "hit") == [f"[folders more than {PATH_DEPTH_MAX} deep were passed over]"]


def search_with_timeout(bench: ToolHarness, seconds: float, pattern: str) -> tuple[RecordedCall, float]:
    tool, call = SearchFilesTool(ProtectedPaths(bench.store), seconds), bench.prepare(pattern=pattern)
    started = time.monotonic()
    call.result = asyncio.run(tool.run(call.tool_run()))
    return call, time.monotonic() - started


def test_a_catastrophic_pattern_is_stopped_with_partial_results(bench: ToolHarness) -> None:
    write_file(bench, "a", "aaab\n")
    write_file(bench, "b", "a" * 64 + "!\n")
    call, took_s = search_with_timeout(bench, 3.0, "(a+)+b")
    assert call.text.splitlines()[0] == "a:1: aaab" and "stopped after" in call.text
    assert took_s < 60


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the children of a process so")
def test_a_search_that_is_cancelled_leaves_nothing_running(bench: ToolHarness) -> None:
    write_file(bench, "b", "a" * 64 + "!\n")

    async def cancelled() -> None:
        call = bench.prepare(pattern="(a+)+b")
        running = asyncio.create_task(bench.tools["search_files"].run(call.tool_run()))
        async with asyncio.timeout(30):
            while not _searches():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert _searches() == []

    asyncio.run(cancelled())


def _searches() -> list[int]:
    """The children of this process that search."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    found = []
    for child in children:
        with suppress(OSError):
            if b"search_program" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def test_results_lines_and_output_are_bounded(bench: ToolHarness) -> None:
    write_file(bench, "many", "hit\n" * 500)
    write_file(bench, "wide", "x" * 5_000 + "hit" + "y" * 5_000 + "\n")
    lines = search(bench, "hit", max_results=7, path="many")
    assert len(lines) == 8 and lines[-1] == "[stopped at 7 results; there are more]"
    (wide,) = search(bench, "hit", path="wide")
    assert "hit" in wide and len(wide) < SEARCH_FILES_LINE_CHARS_MAX + 50
    write_file(bench, "wider", ("hit" + "y" * 1_000 + "\n") * 1_000)
    text = "\n".join(search(bench, "hit", max_results=1_000, path="wider"))
    assert len(text) < SEARCH_FILES_BYTES_MAX + 200 and "no room for more" in text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds the memory of a process so")
def test_a_pattern_over_the_memory_limit_fails_the_call(bench: ToolHarness) -> None:
    write_file(bench, "f", "a\n")
    call = bench.call_sync("search_files", pattern="((((((a{1,99}){1,99}){1,99}){1,99}){1,99}){1,99})")
    assert call.outcome in ("done", "failed") and call.text
