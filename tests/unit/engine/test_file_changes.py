"""What a run did to files: told as one change for each file, kept while needed, put back as it was."""

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.domain.clock import FakeClock
from holdfast.domain.context.context import ToolMessage
from holdfast.domain.decisions.file_changes import FilesChanged, NoSuchChange
from holdfast.domain.errors import RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Change, message_text
from holdfast.domain.ids import RunId, SessionId
from holdfast.domain.limits import CHANGE_BYTES_MAX, CHANGED_FILES_MAX, UNUSED_BLOB_AFTER_MS
from holdfast.domain.secrets import SecretMask
from holdfast.domain.transcript.exports import file_digests
from holdfast.store.ports import Append
from holdfast.tools.builtin import builtin_tools
from holdfast.tools.masking import masked_tools
from holdfast.tools.ports import Tool
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step
from tests.support.summarising_model import install_summarizing_model

Step = tuple[str, dict[str, object]]
SECRET = "hunter2-hunter2-hunter2"


def masked_builtin_tools(folder: Path) -> tuple[Tool, ...]:
    return masked_tools(builtin_tools(folder), SecretMask((SECRET,)))


def write_step(path: str, content: str) -> Step:
    return "write_file", {"path": path, "content": content}


def edit_step(path: str, old: str, new: str) -> Step:
    return "edit_file", {"path": path, "old_text": old, "new_text": new}


async def run_steps(app: AppHarness, session_id: SessionId, *steps: Step) -> RunId:
    """A run in which the model makes these calls, one after the other."""
    app.model.steps += [
        tool_call_step(name, msgspec.json.encode(arguments).decode()) for name, arguments in steps
    ]
    app.model.steps.append(text_step("Done."))
    sent = await app.send(session_id, "Do it.")
    await app.wait_for_run(sent.run_id, "completed")
    assert sent.run_id is not None
    return sent.run_id


def workspace(folder: Path, session_id: SessionId) -> Path:
    return folder / "workspaces" / session_id


async def changes_of(app: AppHarness, run_id: RunId) -> list[tuple[str, int, int, bool]]:
    return [
        (each.path, each.added, each.removed, each.kept)
        for each in (await app.engine.file_changes.list_changes(run_id))[0]
    ]


async def test_a_run_has_one_change_for_each_file_from_first_to_last(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        await run_steps(app, session_id, write_step("old.txt", "a\nb\nc\n"))
        run_id = await run_steps(
            app, session_id,
            write_step("new/file.txt", "x\n"), edit_step("old.txt", "a", "A"),
            edit_step("./old.txt", "c\n", "C\nd\n"),
            write_step("gone.txt", "1\n"), edit_step("new/../new/file.txt", "x", "y"),
            edit_step("old.txt", "A", "a"),
        )  # fmt: skip
        found = await changes_of(app, run_id)
        assert found == [("new/file.txt", 1, 0, True), ("old.txt", 2, 1, True), ("gone.txt", 1, 0, True)]
        (_, old, _), _ = await app.engine.file_changes.list_changes(run_id)
        assert old.diff == "--- a/old.txt\n+++ b/old.txt\n@@ -1,3 +1,4 @@\n a\n b\n-c\n+C\n+d\n"
        assert await app.store.get_blob(old.before or "") == b"a\nb\nc\n"


async def test_the_model_sees_only_the_diff_of_an_edit(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        await run_steps(app, session_id, write_step("f", "a\n"), edit_step("f", "a", "b"))
        said = [message_text(m.parts) for m in app.model.requests[-1].messages if isinstance(m, ToolMessage)]
    assert said == [
        "created `f`, 2 bytes",
        "edited `f`, 1 replacement\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n",
    ]


async def test_files_are_restored_to_their_state_before_the_run(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        folder = workspace(tmp_path, session_id)
        await run_steps(app, session_id, write_step("old.txt", "before\n"))
        (folder / "old.txt").chmod(0o755)
        run_id = await run_steps(
            app, session_id, edit_step("old.txt", "before", "after"), write_step("new.txt", "new\n")
        )
        assert await app.engine.file_changes.restore(run_id, ["new.txt"]) == ("new.txt",)
        assert not (folder / "new.txt").exists() and (folder / "old.txt").read_text() == "after\n"
        assert set(await app.engine.file_changes.restore(run_id)) == {"old.txt", "new.txt"}
        assert (folder / "old.txt").read_text() == "before\n"
        assert (folder / "old.txt").stat().st_mode & 0o777 == 0o755
        assert (await app.event_kinds(session_id))[-2:] == ["files_restored", "files_restored"]
        # Once more changes nothing, and is no error.
        assert set(await app.engine.file_changes.restore(run_id)) == {"old.txt", "new.txt"}


async def test_a_file_whose_new_folder_was_removed_since_is_as_it_was_before(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        folder = workspace(tmp_path, session_id)
        await run_steps(app, session_id, write_step("a", "1\n"), write_step("kept/b", "1\n"))
        steps = (edit_step("a", "1", "2"), write_step("new/deep/c", "1\n"), edit_step("kept/b", "1", "2"))
        run_id = await run_steps(app, session_id, *steps)
        shutil.rmtree(folder / "new")
        assert set(await app.engine.file_changes.restore(run_id, ["a", "new/deep/c"])) == {"a", "new/deep/c"}
        assert (folder / "a").read_text() == "1\n" and not (folder / "new").exists()
        # What was there before is missed.
        shutil.rmtree(folder / "kept")
        with pytest.raises(FilesChanged, match=r"kept/b \(it is no longer there\)"):
            await app.engine.file_changes.restore(run_id)


async def test_nothing_is_restored_if_one_file_changed_after_the_run(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        folder = workspace(tmp_path, session_id)
        await run_steps(
            app, session_id, write_step("a", "1\n"), write_step("b", "1\n"), write_step("c", "1\n")
        )
        run_id = await run_steps(app, session_id, *(edit_step(name, "1", "2") for name in "abc"))
        (folder / "b").write_text("by a person\n")
        (folder / "c").unlink()
        with pytest.raises(FilesChanged, match=r"b \(it was changed since\), c \(it is no longer there\)"):
            await app.engine.file_changes.restore(run_id)
        assert (folder / "a").read_text() == "2\n" and (folder / "b").read_text() == "by a person\n"
        assert "files_restored" not in await app.event_kinds(session_id)
        with pytest.raises(NoSuchChange):
            await app.engine.file_changes.restore(run_id, ["../b"])


async def test_concurrent_equal_restore_requests_all_succeed(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        folder = workspace(tmp_path, session_id)
        for _ in range(5):
            await run_steps(app, session_id, write_step("a", "1\n"))
            run_id = await run_steps(app, session_id, edit_step("a", "1", "2"), write_step("b/c", "x\n"))
            wanted = [app.engine.file_changes.restore(run_id) for _ in range(8)]
            assert await asyncio.gather(*wanted) == [("a", "b/c")] * 8
            assert (folder / "a").read_text() == "1\n" and list((folder / "b").iterdir()) == []


async def test_only_files_in_the_workspace_of_the_run_are_restored(tmp_path: Path) -> None:
    data, first, second = tmp_path / "data", tmp_path / "first", tmp_path / "second"
    for folder in (data, first, second):
        folder.mkdir()
    async with running_app(data, extra_tools=masked_builtin_tools(data)) as app:
        session_id = await app.engine.commands.create(f.SessionCreated(workspace=str(first)))
        (first / "file").write_text("1\n")
        run_id = await run_steps(app, session_id, edit_step("file", "1", "2"), write_step("made", "x\n"))
        for chosen in (str(second), ""):
            # As the run left them, and not the run's.
            folder = Path(chosen) if chosen else workspace(data, session_id)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "file").write_text("2\n")
            (folder / "made").write_text("x\n")
            await app.engine.commands.configure(session_id, f.SessionConfigured(workspace=chosen))
        (change, _), left_out = await app.engine.file_changes.list_changes(run_id)
        assert (change.path, change.workspace, left_out) == ("file", str(first), 0)
        assert await app.engine.file_changes.restore(run_id) == ("file", "made")
        assert (first / "file").read_text() == "1\n" and not (first / "made").exists()
        for folder in (second, workspace(data, session_id)):
            assert (folder / "file").read_text() == "2\n" and (folder / "made").exists()
        own = await run_steps(app, session_id, edit_step("file", "2", "3"))
        await app.engine.commands.configure(session_id, f.SessionConfigured(workspace=str(second)))
        assert await app.engine.file_changes.restore(own) == ("file",)
        assert (workspace(data, session_id) / "file").read_text() == (second / "file").read_text() == "2\n"


async def test_nothing_is_restored_if_the_workspace_is_gone(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        run_id = await run_steps(app, session_id, write_step("made", "x\n"))
        shutil.rmtree(workspace(tmp_path, session_id))
        with pytest.raises(FilesChanged, match="the folder that the run worked in is no longer there"):
            await app.engine.file_changes.restore(run_id)
        assert not workspace(tmp_path, session_id).exists()


async def test_files_are_restored_in_the_successor_session(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool, extra_tools=masked_builtin_tools(tmp_path)) as app:
        model, session_id = install_summarizing_model(app), await app.create_session()
        await run_steps(app, session_id, write_step("old", "1\n"))
        run_id = await run_steps(app, session_id, write_step("made", "x\n"), edit_step("old", "1", "2"))
        new = session_id
        for _ in range(2):
            new = await app.engine.continuation.continue_session(new)
            await app.wait_for_run((await app.send(new, "Go on.")).run_id, "completed")
        tool.hold = asyncio.Event()
        model.steps += [tool_call_step("pull"), text_step("Done.")]
        sent = await app.send(new, "Work on.")
        await tool.started.wait()
        with pytest.raises(RunRefused):
            await app.engine.file_changes.restore(run_id)
        tool.hold.set()
        await app.wait_for_run(sent.run_id, "completed")
        assert await app.engine.file_changes.restore(run_id) == ("made", "old")
        folder = workspace(tmp_path, new)
        assert [path.name for path in folder.iterdir()] == ["old"] and (folder / "old").read_text() == "1\n"
        assert not workspace(tmp_path, session_id).exists(), "the one that was left is not made again"


async def test_a_list_that_is_cut_says_how_many_files_it_leaves_out(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        run_id = await run_steps(app, session_id, write_step("f", "1\n"))
        events = await app.store.read(session_id, 0, 1000)
        (settled,) = [each.fact for each in events if isinstance(each.fact, f.ToolSettled)]
        many = tuple(Change(f"file{n}", kept=False) for n in range(CHANGED_FILES_MAX + 2))
        await app.store.append(Append(session_id, (replace(settled, place=settled.place + 9, parts=many),)))
        changes, left_out = await app.engine.file_changes.list_changes(run_id)
        assert (len(changes), left_out) == (CHANGED_FILES_MAX, 3)


async def test_restoring_never_leaves_the_workspace(tmp_path: Path) -> None:
    data, outside = tmp_path / "data", tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("2\n")
    data.mkdir()
    async with running_app(data, extra_tools=masked_builtin_tools(data)) as app:
        session_id = await app.create_session()
        folder = workspace(data, session_id)
        await run_steps(app, session_id, write_step("in/file", "1\n"))
        run_id = await run_steps(app, session_id, edit_step("in/file", "1", "2"))
        shutil.rmtree(folder / "in")
        (folder / "in").symlink_to(outside)
        with pytest.raises(FilesChanged):
            await app.engine.file_changes.restore(run_id)
        (folder / "in").unlink()
        (folder / "in").mkdir()
        (folder / "in/file").symlink_to(outside / "file")
        with pytest.raises(FilesChanged):
            await app.engine.file_changes.restore(run_id)
        assert (outside / "file").read_text() == "2\n"
        (folder / "in/file").unlink()
        (folder / "real").mkdir()
        (folder / "real/file").write_text("2\n")
        (folder / "in").rmdir()
        (folder / "in").symlink_to("real")
        with pytest.raises(FilesChanged, match="a link is in its way"):
            await app.engine.file_changes.restore(run_id)


async def test_nothing_is_restored_while_a_run_is_active(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        tool.hold = asyncio.Event()
        app.model.steps += [
            tool_call_step(*_raw(write_step("f", "1\n"))),
            tool_call_step("pull"),
            text_step("Done."),
        ]
        sent = await app.send(session_id, "Do it.")
        await tool.started.wait()
        assert sent.run_id is not None
        assert await changes_of(app, sent.run_id) == [("f", 1, 0, True)], "it can be looked at"
        with pytest.raises(RunRefused):
            await app.engine.file_changes.restore(sent.run_id)
        tool.hold.set()
        await app.wait_for_run(sent.run_id, "completed")
        assert await app.engine.file_changes.restore(sent.run_id) == ("f",)


def _raw(step: Step) -> tuple[str, str]:
    return step[0], msgspec.json.encode(step[1]).decode()


async def test_contents_with_secrets_or_too_large_are_reported_and_not_stored(tmp_path: Path) -> None:
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path)) as app:
        session_id = await app.create_session()
        folder = workspace(tmp_path, session_id)
        folder.mkdir(parents=True)
        (folder / ".env").write_text(f"KEY={SECRET}\nother=1\n")
        (folder / "large").write_bytes(b"x" * (CHANGE_BYTES_MAX + 1))
        run_id = await run_steps(
            app, session_id, edit_step(".env", "other=1", "other=2"), write_step("large", "y")
        )
        assert await changes_of(app, run_id) == [(".env", 1, 1, False), ("large", 0, 0, False)]
        with pytest.raises(FilesChanged, match="not kept"):
            await app.engine.file_changes.restore(run_id)
        assert (folder / ".env").read_text() == f"KEY={SECRET}\nother=2\n"
        stored = b"".join([event.body for event in await app.store.read(session_id, 0, 1000)])
        assert SECRET.encode() not in stored


async def test_restore_data_is_kept_as_long_as_the_conversation(tmp_path: Path) -> None:
    clock = FakeClock()
    async with running_app(tmp_path, extra_tools=masked_builtin_tools(tmp_path), clock=clock) as app:
        session_id = await app.create_session()
        await run_steps(app, session_id, write_step("f", "1\n"))
        run_id = await run_steps(app, session_id, edit_step("f", "1", "2"))
        (change,), _ = await app.engine.file_changes.list_changes(run_id)
        branch = await app.engine.commands.fork(session_id)
        clock.advance(2 * UNUSED_BLOB_AFTER_MS)
        await app.store.sweep()
        events = await app.store.read(session_id, 0, 1000)
        assert {change.before, change.after} <= {blob for event in events for blob in file_digests(event)}
        assert await app.engine.file_changes.restore(run_id) == ("f",)
        await app.engine.delete(session_id)
        clock.advance(2 * UNUSED_BLOB_AFTER_MS)
        await app.store.sweep()
        copied = [part for entry in await app.entries(branch) for part in entry.parts]
        blobs = [part.after for part in copied if isinstance(part, Change)]
        assert [await app.store.get_blob(blob or "") for blob in blobs] == [b"1\n", b"2\n"]
