"""No path leads out of the workspace: not by `..`, not by links, not by one swapped in at the last moment."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.domain.limits import PATH_DEPTH_MAX
from tests.support.tool_fixture import ToolHarness, bench

__all__ = ["bench"]

SECRET = "the secret outside"
TOOLS = ("read_file", "write_file", "list_files")


@pytest.fixture
def outside(bench: ToolHarness) -> Path:
    """A folder beside the workspace, with a file that nobody may see or touch."""
    bench.workspace.mkdir(mode=0o700)
    folder = bench.folder / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


def attack(bench: ToolHarness, path: str, outside: Path) -> list[str]:
    """Try `path` with every tool; what they answered. Fails when one got out."""
    answers = []
    for tool in TOOLS:
        more = {"content": "planted"} if tool == "write_file" else {}
        call = bench.call_sync(tool, path=path, **more)
        assert call.outcome == "failed", f"{tool} {path}: {call.text}"
        assert SECRET not in call.text
        assert "secret.txt\n" not in call.text
        answers.append(call.text)
    assert [entry.name for entry in outside.iterdir()] == ["secret.txt"]
    assert (outside / "secret.txt").read_text() == SECRET
    return answers


@pytest.mark.parametrize(
    "path",
    ["../outside/secret.txt", "a/../../outside/secret.txt", "./.././outside", "..", "../workspace/../outside",
     "/etc/passwd", "/", "//etc", "/proc/self/" + "root/etc/passwd", "/proc/self/cwd", "/dev/fd/0"],
)  # fmt: skip
def test_a_path_that_leads_out_is_refused(bench: ToolHarness, outside: Path, path: str) -> None:
    (bench.workspace / "a").mkdir()
    assert set(attack(bench, path, outside)) == {f"`{path}` is outside the workspace"}


def test_an_absolute_path_beside_or_above_the_workspace_is_refused(bench: ToolHarness, outside: Path) -> None:
    (bench.folder / "workspace2").mkdir()
    for path in (outside / "secret.txt", bench.folder, bench.folder / "workspace2", outside):
        attack(bench, str(path), outside)
    attack(bench, f"{bench.workspace}/../outside/secret.txt", outside)


def test_an_absolute_path_inside_a_linked_workspace_is_accepted(bench: ToolHarness, outside: Path) -> None:
    (bench.workspace / "a.txt").write_text("inside")
    alias = bench.folder / "alias"
    alias.symlink_to(bench.workspace)
    real = bench.workspace
    for workspace, root in ((real, real), (alias, alias), (alias, real)):
        bench.workspace = workspace
        assert bench.call_sync("read_file", path=f"{root}/a.txt").text == "inside"
        assert bench.call_sync("list_files", path=str(root)).text == "a.txt  6 bytes"


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("../outside/secret.txt", "link"),
        ("{outside}/secret.txt", "link"),
        ("../outside", "link"),
        ("../outside", "link/secret.txt"),
        ("{outside}", "link/secret.txt"),
        ("{outside}", "link/new.txt"),
        ("..", "link/outside/secret.txt"),
        ("/", "link{outside}/secret.txt"),
        ("/proc/self/root", "link{outside}/secret.txt"),
        ("/proc/self/cwd", "link/secret.txt"),
        ("second", "link/secret.txt"),
    ],
)
def test_a_link_that_leads_out_is_refused(bench: ToolHarness, outside: Path, target: str, path: str) -> None:
    (bench.workspace / "second").symlink_to(outside)
    (bench.workspace / "link").symlink_to(target.format(outside=outside))
    asked = path.format(outside=outside)
    assert set(attack(bench, asked, outside)) == {f"`{asked}` is outside the workspace"}


def test_a_dangling_link_out_creates_nothing(bench: ToolHarness, outside: Path) -> None:
    (bench.workspace / "link").symlink_to(outside / "new.txt")
    attack(bench, "link", outside)


def test_a_link_that_stays_inside_is_followed(bench: ToolHarness, outside: Path) -> None:
    (bench.workspace / "real" / "deep").mkdir(parents=True)
    (bench.workspace / "real" / "deep" / "a.txt").write_text("inside")
    (bench.workspace / "relative").symlink_to("real/deep")
    (bench.workspace / "absolute").symlink_to(bench.workspace / "real")
    (bench.workspace / "real" / "up").symlink_to("../relative/a.txt")
    for path in ("relative/a.txt", "absolute/deep/a.txt", "absolute/up", "relative/../up"):
        assert bench.call_sync("read_file", path=path).text == "inside"
    assert bench.call_sync("write_file", path="absolute/up", content="new").outcome == "done"
    assert (bench.workspace / "real" / "deep" / "a.txt").read_text() == "new"
    assert (bench.workspace / "real" / "up").is_symlink()


def test_links_in_circles_are_refused(bench: ToolHarness, outside: Path) -> None:
    (bench.workspace / "a").symlink_to("b")
    (bench.workspace / "b").symlink_to("a")
    (bench.workspace / "self").symlink_to("self/x")
    for path in ("a", "b/c", "self"):
        assert "circles" in attack(bench, path, outside)[0]


def test_listing_does_not_go_through_links(bench: ToolHarness, outside: Path) -> None:
    (bench.workspace / "out").symlink_to(outside)
    (bench.workspace / "self").symlink_to(".")
    text = bench.call_sync("list_files", depth=10).text
    assert text == f"out -> {outside}\nself -> ."


def test_deep_and_malformed_paths_are_refused_with_a_reason(bench: ToolHarness, outside: Path) -> None:
    for path in ("a/" * (PATH_DEPTH_MAX + 5) + "x", "x" * 300, "a\0b", "x" * 5000, "x/../" * 300):
        for text in attack(bench, path, outside):
            assert "Errno" not in text
    assert "folders deep" in bench.call_sync("write_file", path="a/" * 100 + "x", content="").text


def test_pipes_sockets_and_devices_are_neither_read_nor_replaced(bench: ToolHarness, outside: Path) -> None:
    os.mkfifo(bench.workspace / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        before = Path.cwd()
        os.chdir(bench.workspace)  # The path of a socket must be short.
        listener.bind("socket")
        os.chdir(before)
    started = time.monotonic()
    for name in ("pipe", "socket"):
        attack(bench, name, outside)
    assert time.monotonic() - started < 30
    assert bench.call_sync("list_files").text.count("(neither a file nor a folder)") == 2


SWAP = """
import os, shutil, sys
place, aside, target = sys.argv[1:]

def move(source, goal):
    while True:  # A tool may have made a folder of that name meanwhile.
        try:
            return os.rename(source, goal)
        except OSError:
            shutil.rmtree(goal, ignore_errors=True)
            if os.path.islink(goal):
                os.unlink(goal)

def link():
    os.symlink(target, aside + ".link")
    return aside + ".link"

if os.path.isfile(target):
    os.rename(place, aside)
while os.path.isfile(target):
    os.link(aside, aside + ".file")
    os.rename(aside + ".file", place)
    os.rename(link(), place)
while True:
    link()
    move(place, aside)
    move(aside + ".link", place)
    move(aside, place)
"""


@contextmanager
def swap_in_background(place: Path, aside: Path, target: Path) -> Iterator[None]:
    """Meanwhile, another process makes `place` by turns itself and a link to `target`, as fast as it can."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SWAP, str(place), str(aside), str(target)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("what", ["folder", "file"])
def test_a_link_swapped_in_during_the_walk_does_not_escape(
    bench: ToolHarness, outside: Path, what: str
) -> None:
    """Each answer is the file inside or a refusal. The one outside is never read, written or replaced."""
    folder = bench.workspace / "folder"
    folder.mkdir()
    (folder / "secret.txt").write_text("inside")
    aside = bench.folder / "aside"
    aside.mkdir()
    place, target = (folder, outside) if what == "folder" else (folder / "secret.txt", outside / "secret.txt")

    async def race() -> tuple[set[str], int]:
        started, answers, tried = time.monotonic(), set(), 0
        while time.monotonic() - started < (0.7 if len(answers) > 1 and "inside" in answers else 60):
            for _ in range(20):
                answers.add((await bench.call("read_file", path="folder/secret.txt")).text)
            await bench.call("write_file", path="folder/secret.txt", content="inside")
            answers.add((await bench.call("list_files", path="folder", depth=2)).text)
            assert (outside / "secret.txt").read_text() == SECRET
            tried += 22
        return answers, tried

    with swap_in_background(place, aside / "kept", target):
        answers, tried = asyncio.run(race())
    print(f"{tried} calls while a link was swapped in, {len(answers)} different answers, 0 escapes")
    assert [entry.name for entry in outside.iterdir()] == ["secret.txt"]
    assert "inside" in answers
    assert len(answers) > 1, "the swap was never met"
    assert not any(f"{len(SECRET)} bytes" in answer or SECRET in answer for answer in answers)


def test_a_link_swapped_in_before_opening_is_not_followed(
    bench: ToolHarness, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same swap, at the one moment that matters: it is too short to be met by chance."""
    folder, look = bench.workspace / "folder", os.readlink
    folder.mkdir()
    (folder / "secret.txt").write_text("inside")

    def look_and_swap(name: str, *, dir_fd: int | None = None) -> str:
        try:
            return look(name, dir_fd=dir_fd)
        finally:
            if name == folder.name:
                folder.rename(bench.folder / "aside")
                folder.symlink_to(outside)

    monkeypatch.setattr(os, "readlink", look_and_swap)
    call = bench.call_sync("read_file", path="folder/secret.txt")
    assert folder.is_symlink() and SECRET not in call.text
    assert (call.outcome, call.text) == ("failed", "part of `folder/secret.txt` is not a folder")


def test_a_hard_link_to_outside_is_read_but_never_written_through(bench: ToolHarness, outside: Path) -> None:
    """A hard link cannot be told from a file. Making one takes the rights to the file in the first place."""
    with suppress(PermissionError):
        os.link(outside / "secret.txt", bench.workspace / "hard")
        assert bench.call_sync("read_file", path="hard").text == SECRET
        assert bench.call_sync("write_file", path="hard", content="mine").outcome == "done"
        assert (outside / "secret.txt").read_text() == SECRET
