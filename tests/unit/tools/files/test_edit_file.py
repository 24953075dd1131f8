"""Editing: exactly what was asked is replaced, once, nothing outside is reached, and what changed is told."""

import asyncio
import codecs
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.diffs import unified_diff
from holdfast.domain.events.parts import Change
from holdfast.domain.limits import CHANGE_BYTES_MAX, EDIT_FILE_BYTES_MAX
from holdfast.tools.arguments import ToolError
from holdfast.tools.files.atomic_replace import FileSnapshot
from holdfast.tools.files.edit_file import EditError, TextDocument, replace_text
from holdfast.tools.files.file_changer import FileChanger
from holdfast.tools.ports import ToolRun
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from tests.support.tool_fixture import RecordedCall, ToolHarness, bench

__all__ = ["bench"]


def write_file(bench: ToolHarness, name: str, content: bytes) -> Path:
    path = bench.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def edit(bench: ToolHarness, path: str, old: str, new: str, **more: object) -> RecordedCall:
    return bench.call_sync("edit_file", path=path, old_text=old, new_text=new, **more)


def change_in(call: RecordedCall) -> Change:
    assert call.result is not None and call.result.parts is not None
    (change,) = [part for part in call.result.parts if isinstance(part, Change)]
    return change


def test_an_edit_replaces_text_and_returns_a_diff(bench: ToolHarness) -> None:
    path = write_file(bench, "src/a.py", b"one\ntwo\nthree\n")
    path.chmod(0o741)
    call = edit(bench, "src/a.py", "two\n", "2\n2b\n")
    assert (call.outcome, call.text) == ("done", "edited `src/a.py`, 1 replacement")
    assert path.read_bytes() == b"one\n2\n2b\nthree\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o741
    change = change_in(call)
    assert (change.path, change.added, change.removed) == ("src/a.py", 2, 1)
    assert change.diff == "--- a/src/a.py\n+++ b/src/a.py\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2b\n three\n"
    assert sorted(os.listdir(path.parent)) == ["a.py"]  # noqa: PTH208


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nB2\r\nc\r\n"),
        (codecs.BOM_UTF8 + b"a\nb\nc\n", codecs.BOM_UTF8 + b"a\nB\nB2\nc\n"),
        (codecs.BOM_UTF16_LE + "a\nb\nc\nü".encode("utf-16-le"),
         codecs.BOM_UTF16_LE + "a\nB\nB2\nc\nü".encode("utf-16-le")),
        (b"a\nb\nc\n\xff\xfe latin \xe4", b"a\nB\nB2\nc\n\xff\xfe latin \xe4"),
        (b"x\r\na\nb\nc", b"x\r\na\nB\nB2\nc"),
        (b"a\nb\nc", b"a\nB\nB2\nc"),
    ],
)  # fmt: skip
def test_an_edit_preserves_line_endings_and_encoding(bench: ToolHarness, before: bytes, after: bytes) -> None:
    path = write_file(bench, "file", before)
    assert edit(bench, "file", "a\nb\nc", "a\nB\nB2\nc").outcome == "done"
    assert path.read_bytes() == after


@pytest.mark.parametrize(
    ("old", "new", "more", "said"),
    [
        ("three", "x", {}, "old_text is not there. Nothing in the file looks like its first line."),
        ("def go( self ):", "x", {}, "With other white space or line ends it is at line 2"),
        ("def go(self, b):", "x", {}, "The nearest to its first line is line 2: def go(self):"),
        ("aa", "x", {}, "more than once (lines 1, 4)"),
        ("self", "self", {}, "the same"),
        ("", "x", {}, "old_text is empty"),
        ("a", "x" * 1_000_000, {"replace_all": True}, "larger than the 2,000,000 bytes"),
    ],
)  # fmt: skip
def test_a_failed_edit_says_why_and_changes_nothing(
    bench: ToolHarness, old: str, new: str, more: dict[str, object], said: str
) -> None:
    content = b"aaa\n    def go(self):\n        pass\naa\n"
    path = write_file(bench, "file", content)
    call = edit(bench, "file", old, new, **more)
    assert call.outcome == "failed" and said in call.text, call.text
    assert path.read_bytes() == content


def test_all_occurrences_are_replaced_only_with_replace_all(bench: ToolHarness) -> None:
    path = write_file(bench, "file", b"a b a b a\n")
    assert "replace_all" in edit(bench, "file", "a", "c").text
    assert edit(bench, "file", "a", "c", replace_all=True).text == "edited `file`, 3 replacements"
    assert path.read_bytes() == b"c b c b c\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\0b", "binary"),
        (b"a" * (EDIT_FILE_BYTES_MAX + 1), "edit_file takes"),
        (b"a" * (CHANGE_BYTES_MAX + 1), "edit_file takes"),
        (b"\xe4 text", "not text in UTF-8"),
    ],
)
def test_binary_and_oversized_files_are_refused(bench: ToolHarness, content: bytes, said: str) -> None:
    path = write_file(bench, "file", content)
    call = edit(bench, "file", "a", "ö")
    assert call.outcome == "failed" and said in call.text
    assert path.read_bytes() == content


# Attacks.


def outside(bench: ToolHarness) -> Path:
    path = bench.folder / "outside" / "file"
    path.parent.mkdir()
    path.write_bytes(b"secret a\n")
    bench.workspace.mkdir(exist_ok=True)
    return path


def test_an_edit_never_leaves_the_workspace(bench: ToolHarness) -> None:
    target = outside(bench)
    (bench.workspace / "link").symlink_to(target)
    (bench.workspace / "folder").symlink_to(target.parent)
    (bench.workspace / "around").symlink_to("../outside")
    bench.store.mkdir()
    (bench.store / "file").write_bytes(b"a")
    for path in ("../outside/file", str(target), "link", "folder/file", "around/file", "x/../../outside/file",
                 str(bench.store / "file"), "/proc/self/comm", "/dev/null"):  # fmt: skip
        call = edit(bench, path, "a", "b")
        assert call.outcome == "failed", path
        assert "secret" not in call.text
    assert target.read_bytes() == b"secret a\n"


def test_a_link_inside_the_workspace_is_edited_under_its_real_path(bench: ToolHarness) -> None:
    path = write_file(bench, "real/file", b"a\n")
    (bench.workspace / "way").symlink_to("real")
    (bench.workspace / "real/other").symlink_to("file")
    call = edit(bench, "way/other", "a", "b")
    assert (call.outcome, change_in(call).path) == ("done", "real/file")
    assert path.read_bytes() == b"b\n" and (bench.workspace / "real/other").is_symlink()


def test_an_edit_does_not_write_through_a_hard_link(bench: ToolHarness) -> None:
    target = outside(bench)
    os.link(target, bench.workspace / "hard")
    assert edit(bench, "hard", "a", "b").outcome == "done"
    assert (bench.workspace / "hard").read_bytes() == b"secret b\n"
    assert target.read_bytes() == b"secret a\n"


def test_special_files_are_refused_at_once(bench: ToolHarness) -> None:
    bench.workspace.mkdir()
    os.mkfifo(bench.workspace / "pipe")
    (bench.workspace / "folder").mkdir()
    write_file(bench, "protected", b"a").chmod(0o444)
    said = {name: edit(bench, name, "a", "b").text for name in ("pipe", "folder", "protected", "missing")}
    assert said == {
        "pipe": "`pipe` is not a regular file",
        "folder": "`folder` is a folder",
        "protected": "`protected` is write-protected",
        "missing": "there is no `missing`; write_file makes one",
    }


def test_a_folder_swapped_for_a_link_does_not_escape(bench: ToolHarness) -> None:
    target = outside(bench)
    write_file(bench, "inner/file", b"inside a\n")
    stop = threading.Event()

    def swap() -> None:
        inner, away, link = (bench.workspace / name for name in ("inner", "away", "swapped"))
        while not stop.is_set():
            link.symlink_to(target.parent)
            inner.rename(away)
            link.rename(inner)
            inner.unlink()
            away.rename(inner)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for old, new in [("a", "b"), ("b", "a")] * 100:
            edit(bench, "inner/file", old, new)
    finally:
        stop.set()
        swapping.join()
    assert target.read_bytes() == b"secret a\n"
    assert os.listdir(target.parent) == ["file"]  # noqa: PTH208


def run_of(bench: ToolHarness) -> ToolRun:
    return bench.prepare().tool_run()


def changing(bench: ToolHarness) -> FileChanger:
    return FileChanger(bench.store, ProtectedPaths(bench.store))


def test_a_file_changed_before_the_write_is_read_again(bench: ToolHarness) -> None:
    path, seen = write_file(bench, "file", b"a\n"), list[bytes | None]()

    def make(found: FileSnapshot | None) -> bytes:
        before = found.content if found is not None else None
        seen.append(before)
        if len(seen) == 1:
            path.write_bytes(b"z\n")  # The same size, within the same tick of the clock.
        return (before or b"") + b"mine\n"

    asyncio.run(changing(bench).apply(run_of(bench), "file", make, is_exact=True, create_folders=False))
    assert seen == [b"a\n", b"z\n"] and path.read_bytes() == b"z\nmine\n"


def test_a_constantly_changing_file_is_not_written(bench: ToolHarness) -> None:
    path, times = write_file(bench, "file", b"a\n"), list[int]()

    def make(found: FileSnapshot | None) -> bytes:
        times.append(1)
        path.write_bytes(b"theirs %d\n" % len(times))
        return b"mine\n"

    with pytest.raises(ToolError, match="being changed by somebody else"):
        asyncio.run(changing(bench).apply(run_of(bench), "file", make, is_exact=True, create_folders=False))
    assert len(times) > 1 and path.read_bytes() == b"theirs %d\n" % len(times)
    assert os.listdir(bench.workspace) == ["file"]  # noqa: PTH208


def test_a_new_file_does_not_replace_one_created_meanwhile(bench: ToolHarness) -> None:
    bench.workspace.mkdir()
    path, seen = bench.workspace / "file", list[bytes | None]()

    def make(found: FileSnapshot | None) -> bytes:
        before = found.content if found is not None else None
        seen.append(before)
        if before is None:
            path.write_bytes(b"theirs\n")
        return (before or b"") + b"mine\n"

    asyncio.run(changing(bench).apply(run_of(bench), "file", make, is_exact=True, create_folders=False))
    assert path.read_bytes() == b"theirs\nmine\n"


# Made again.


def repeat_call(bench: ToolHarness, call: RecordedCall) -> RecordedCall:
    """The same call once more, as after a restart that came before its end was durable."""
    other = RecordedCall(call.id, call.arguments, call.workspace)
    other.result = asyncio.run(bench.tools["edit_file"].run(other.tool_run()))
    return other


def test_a_repeated_edit_is_applied_once(bench: ToolHarness) -> None:
    path = write_file(bench, "file", b"x = 1\n")
    first = edit(bench, "file", "x", "xx")
    second = repeat_call(bench, first)
    assert path.read_bytes() == b"xx = 1\n"
    assert second.outcome == "done" and change_in(second) == change_in(first)


def test_an_edit_interrupted_before_writing_is_applied(bench: ToolHarness) -> None:
    path = write_file(bench, "file", b"x = 1\n")
    first = edit(bench, "file", "x", "xx")
    path.write_bytes(b"x = 1\n")
    assert repeat_call(bench, first).outcome == "done" and path.read_bytes() == b"xx = 1\n"


def test_an_edit_with_unknown_outcome_is_not_repeated(bench: ToolHarness) -> None:
    path = write_file(bench, "file", b"x = 1\n")
    first = edit(bench, "file", "x", "xx")
    path.write_bytes(b"x = 1 # by a person\n")
    second = repeat_call(bench, first)
    assert second.outcome == "failed" and "not known" in second.text
    assert path.read_bytes() == b"x = 1 # by a person\n"


def test_the_note_is_deleted_once_the_result_is_durable(bench: ToolHarness) -> None:
    write_file(bench, "file", b"x = 1\n")
    call = edit(bench, "file", "x", "xx")
    (note,) = (bench.store / "calls").iterdir()
    assert note.stat().st_mode & 0o777 == 0o600
    assert call.result is not None and call.result.on_settled is not None
    call.result.on_settled()
    assert list((bench.store / "calls").iterdir()) == []


def test_two_processes_apply_the_same_call_once(bench: ToolHarness) -> None:
    """One was stopped for so long that another has taken its run over, and then goes on."""
    path, call, other = write_file(bench, "file", b"x = 1\n"), bench.prepare(), changing(bench)

    def stalled(found: FileSnapshot | None) -> bytes:
        assert found is not None and found.content is not None
        if found.content == b"x = 1\n":
            overtaking = other.apply(call.tool_run(), "file", quick, is_exact=True, create_folders=False)
            thread = threading.Thread(target=asyncio.run, args=(overtaking,))
            thread.start()
            thread.join()
        return quick(found)

    def quick(found: FileSnapshot | None) -> bytes:
        assert found is not None and found.content is not None
        return found.content.replace(b"x", b"xx", 1)

    asyncio.run(changing(bench).apply(call.tool_run(), "file", stalled, is_exact=True, create_folders=False))
    assert path.read_bytes() == b"xx = 1\n"


def test_a_path_that_is_not_text_is_refused_first(bench: ToolHarness) -> None:
    odd = os.fsdecode(b"f\xff")
    path = write_file(bench, odd, b"a\n")
    (bench.workspace / "link").symlink_to(odd)
    call = edit(bench, "link", "a", "b")
    assert call.outcome == "failed" and "must be text" in call.text
    assert path.read_bytes() == b"a\n"
    assert bench.call_sync("search_files", pattern="a", path="link").outcome == "failed"
    assert bench.call_sync("search_files", pattern="a").text == "f\\udcff:1: a\n"


# Against a plain model.

words = st.text("ab \n", max_size=12)


def expected(text: str, old: str, new: str, everywhere: bool) -> str | None:
    places = [at for at in range(len(text)) if text[at : at + len(old)] == old]
    if not places or (len(places) > 1 and not everywhere):
        return None
    return new.join(text.split(old))


@given(words, st.text("ab \n", min_size=1, max_size=3), words, st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_edit_matches_a_reference_implementation(
    text: str, old: str, new: str, everywhere: bool, crlf: bool
) -> None:
    ends = "\r\n" if crlf else "\n"
    document = TextDocument.decode(text.replace("\n", ends).encode(), old + new)
    try:
        found = document.encode(replace_text(document, old, new, everywhere)[0])
    except EditError:
        found = None
    # Without a line end in it, a file cannot tell which it would have.
    ends = ends if "\n" in text else "\n"
    wanted = expected(text, old, new, everywhere)
    assert found == (None if wanted is None else wanted.replace("\n", ends).encode())


lines = st.lists(st.sampled_from("abcdef"), max_size=30).map(lambda each: "\n".join(each).encode())


@given(lines, lines)
@settings(max_examples=300, deadline=None)
def test_applying_a_diff_to_the_old_file_gives_the_new_one(old: bytes, new: bytes) -> None:
    diff = unified_diff("file", old, new)
    before, after = _sides(diff.text)
    assert (diff.text == "") == (old == new)
    assert len(after) - len(before) == diff.added - diff.removed
    applied, at = list[bytes](), 0
    source = old.splitlines(keepends=True)
    for start, count, inserted in _hunks(diff.text):
        begin = start - 1 if count else start
        applied += source[at:begin] + inserted
        at = begin + count
    assert b"".join(applied + source[at:]) == new


def _sides(text: str) -> tuple[list[str], list[str]]:
    body = [line for line in text.splitlines()[2:] if line[:1] in (" ", "-", "+")]
    return [each for each in body if each[0] != "+"], [each for each in body if each[0] != "-"]


def _hunks(text: str) -> list[tuple[int, int, list[bytes]]]:
    found: list[tuple[int, int, list[bytes]]] = []
    for line in text.splitlines(keepends=True)[2:]:
        if line.startswith("@@"):
            first, _, count = line.split()[1][1:].partition(",")
            found.append((int(first), int(count or 1), []))
            sign = ""
        elif line.startswith("\\"):
            if sign != "-":
                found[-1][2][-1] = found[-1][2][-1].removesuffix(b"\n")
        else:
            sign = line[0]
            if sign != "-":
                found[-1][2].append(line[1:].encode())
    return found
