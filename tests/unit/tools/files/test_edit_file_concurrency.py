"""Editing one file at once, by calls and by processes: no edit is lost, and nobody waits without end."""

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.tools.arguments import ToolError
from holdfast.tools.files.file_changer import FileChanger
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from tests.support.tool_fixture import ToolHarness, bench

__all__ = ["bench"]


def write_numbered_lines(bench: ToolHarness, lines: int = 0) -> Path:
    """The file that all of them edit."""
    bench.workspace.mkdir()
    path = bench.workspace / "file"
    path.write_text("".join(f"line {n} 0\n" for n in range(lines)) or "a\n")
    return path


EDITOR = """
import asyncio, sys
from pathlib import Path
from tests.support.tool_fixture import ToolHarness

async def main(folder, number):
    bench = ToolHarness(Path(folder), store=Path(folder) / f"store{number}")
    bench._calls = 1000 * number
    print("ready", flush=True)
    sys.stdin.readline()
    for line in range(number, 60, 3):
        lines = dict(path="file", old_text=f"line {line} 0\\n", new_text=f"line {line} 1\\n")
        done = await bench.call("edit_file", **lines)
        if done.outcome == "done":
            print(line, flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


def test_concurrent_processes_lose_no_edit(bench: ToolHarness) -> None:
    path = write_numbered_lines(bench, lines=60)
    command = [sys.executable, "-c", EDITOR, str(bench.folder)]
    pipe = subprocess.PIPE
    editors = [subprocess.Popen([*command, str(n)], stdin=pipe, stdout=pipe, text=True) for n in range(3)]
    try:
        for editor in editors:
            assert editor.stdout is not None and editor.stdout.readline() == "ready\n"
        for editor in editors:  # Only now: they are to meet.
            assert editor.stdin is not None
            editor.stdin.write("go\n")
            editor.stdin.flush()
        said = "".join(editor.communicate(timeout=60)[0] for editor in editors).split()
    finally:
        for editor in editors:
            editor.kill()
            editor.wait()
    assert all(editor.returncode == 0 for editor in editors)
    edited = [line.split()[1] for line in path.read_text().splitlines() if line.endswith(" 1")]
    assert len(said) > 30 and sorted(said) == sorted(edited)
    assert os.listdir(bench.workspace) == ["file"]  # noqa: PTH208


def test_concurrent_edits_of_one_file_all_succeed(bench: ToolHarness) -> None:
    path = write_numbered_lines(bench, lines=8)

    async def edit_lines(begin: int) -> list[str]:
        calls = [
            await bench.call("edit_file", path="file", old_text=f"line {n} 0\n", new_text=f"line {n} 1\n")
            for n in range(begin, begin + 2)
        ]
        return [call.outcome for call in calls]

    async def all_at_once() -> list[list[str]]:
        return await asyncio.gather(*(edit_lines(begin) for begin in range(0, 8, 2)))

    outcomes = asyncio.run(all_at_once())
    assert outcomes == [["done"] * 2] * 4
    assert path.read_text() == "".join(f"line {n} 1\n" for n in range(8))


def test_an_edit_waits_for_a_locked_folder(bench: ToolHarness) -> None:
    path = write_numbered_lines(bench)
    holding = os.open(bench.workspace, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(holding, fcntl.LOCK_EX)

    async def edit_meanwhile() -> tuple[bytes, str]:
        editing = asyncio.ensure_future(bench.call("edit_file", path="file", old_text="a", new_text="b"))
        notes = bench.store / "calls"
        for _ in range(3000):
            if notes.is_dir() and list(notes.iterdir()):  # Noted: now it needs the folder.
                break
            await asyncio.sleep(0.01)
        assert list(notes.iterdir())
        before = path.read_bytes()
        fcntl.flock(holding, fcntl.LOCK_UN)
        return before, (await editing).outcome

    try:
        assert asyncio.run(edit_meanwhile()) == (b"a\n", "done")
    finally:
        os.close(holding)
    assert path.read_bytes() == b"b\n"


def test_waiting_for_a_locked_folder_times_out(bench: ToolHarness) -> None:
    path, impatient = (
        write_numbered_lines(bench),
        FileChanger(bench.store, ProtectedPaths(bench.store), wait_ms_max=50),
    )

    def apply(is_exact: bool) -> None:
        run = bench.prepare().tool_run()
        asyncio.run(impatient.apply(run, "file", lambda seen: b"b\n", is_exact, create_folders=False))

    holding = os.open(bench.workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(holding, fcntl.LOCK_EX)
        for is_exact in (True, False):
            with pytest.raises(ToolError, match="somebody else holds the folder of `file`; nothing was done"):
                apply(is_exact)
    finally:
        os.close(holding)
    assert path.read_bytes() == b"a\n" and os.listdir(bench.workspace) == ["file"]  # noqa: PTH208
    assert list((bench.store / "calls").iterdir()) == []
    apply(is_exact=True)
    assert path.read_bytes() == b"b\n"
