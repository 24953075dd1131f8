"""Calls that would fail as things are: nobody is asked about one, and none is begun for it."""

from pathlib import Path

import msgspec
import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.secrets import SecretMask
from holdfast.domain.state.rows import ToolRow
from holdfast.models.ports import CallDelta
from holdfast.tools.files.edit_file import EditFileTool
from holdfast.tools.files.file_changer import FileChanger
from holdfast.tools.files.write_file import WriteFileTool
from holdfast.tools.masking import masked_tools
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from tests.support.in_process_app import (
    AppHarness,
    FakeTool,
    StepAction,
    running_app,
    text_step,
    tool_call_step,
)


def tools(folder: Path) -> tuple[EditFileTool, WriteFileTool]:
    changing = FileChanger(folder, ProtectedPaths(folder))
    return EditFileTool(changing), WriteFileTool(changing)


def edit(path: str, old: str = "old", **more: object) -> list[StepAction]:
    arguments = {"path": path, "old_text": old, "new_text": "new", **more}
    return tool_call_step("edit_file", msgspec.json.encode(arguments).decode())


def write(path: str) -> list[StepAction]:
    return tool_call_step("write_file", msgspec.json.encode({"path": path, "content": "old"}).decode())


def workspace(folder: Path, session_id: SessionId) -> Path:
    place = folder / "workspaces" / session_id
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (edit("gone"), "there is no `gone`"),
        (edit("gone/deeper"), "there is no `gone/deeper`"),
        (edit("file", "nowhere to be found"), "old_text is not there"),
        (edit("twice"), "old_text is there more than once"),
        (edit("../file"), "is outside the workspace"),
        (edit("/etc/passwd", "root"), "is outside the workspace"),
        (edit("folder"), "is a folder"),
        (write("folder"), "is a folder"),
        (write("../file"), "is outside the workspace"),
        (write("file/below"), "is not a folder"),
    ],
)
async def test_a_change_that_would_fail_fails_without_approval(
    tmp_path: Path, step: list[StepAction], said: str
) -> None:
    async with running_app(tmp_path, approvals="ask", extra_tools=tools(tmp_path)) as app:
        session_id = await app.create_session()
        place = workspace(tmp_path, session_id)
        (place / "file").write_text("old")
        (place / "twice").write_text("old old")
        (place / "folder").mkdir()
        app.model.steps = [step, text_step("I see.")]
        sent = await app.send(session_id, "Go")
        await app.wait_for_run(sent.run_id, "completed")
        assert said in str(app.model.requests[-1].messages[-1])
        found = [type(event.fact) for event in await app.store.read(session_id, 0, 1_000)]
        assert f.ApprovalRequested not in found and f.ToolStarted not in found
        assert sorted(each.name for each in place.iterdir()) == ["file", "folder", "twice"]


@pytest.mark.parametrize("step", [edit("file"), edit("twice", replace_all=True), write("new/deep/file")])
async def test_a_change_that_can_succeed_asks_for_approval(tmp_path: Path, step: list[StepAction]) -> None:
    async with running_app(tmp_path, approvals="ask", extra_tools=tools(tmp_path)) as app:
        session_id = await app.create_session()
        place = workspace(tmp_path, session_id)
        (place / "file").write_text("old")
        (place / "twice").write_text("old old")
        app.model.steps = [step]
        (tool,) = await _pending_calls(app, session_id)
        assert (tool.state, tool.approval) == ("intended", "requested")
        assert sorted(each.name for each in place.iterdir()) == ["file", "twice"]


async def test_a_first_file_can_be_written_where_there_is_no_workspace_yet(tmp_path: Path) -> None:
    async with running_app(tmp_path, approvals="ask", extra_tools=tools(tmp_path)) as app:
        session_id = await app.create_session()
        app.model.steps = [write("file")]
        (tool,) = await _pending_calls(app, session_id)
        assert tool.approval == "requested"


async def test_a_change_of_what_the_call_before_it_makes_is_not_judged_too_early(tmp_path: Path) -> None:
    async with running_app(tmp_path, approvals="ask", extra_tools=tools(tmp_path)) as app:
        session_id = await app.create_session()
        call, end = write("file")
        app.model.steps = [[call, *_second(edit("file")), end], text_step("Done.")]
        first, second = await _pending_calls(app, session_id)
        assert (first.approval, second.approval) == ("requested", "requested")
        for tool in (first, second):
            assert tool.run_id is not None
            await app.engine.resolve(tool.run_id, tool.id, "approve")
        await app.wait_for_run(first.run_id, "completed")
        assert (tmp_path / "workspaces" / session_id / "file").read_text() == "new"


async def test_an_approved_call_is_checked_again_before_it_runs(tmp_path: Path) -> None:
    async with running_app(tmp_path, approvals="ask", extra_tools=tools(tmp_path)) as app:
        session_id = await app.create_session()
        place = workspace(tmp_path, session_id)
        (place / "file").write_text("old")
        app.model.steps = [edit("file"), text_step("I see.")]
        (tool,) = await _pending_calls(app, session_id)
        (place / "file").write_text("other")
        assert tool.run_id is not None
        await app.engine.resolve(tool.run_id, tool.id, "approve")
        await app.wait_for_run(tool.run_id, "completed")
        assert "old_text is not there" in str(app.model.requests[-1].messages[-1])
        assert (place / "file").read_text() == "other"


async def test_a_predicted_failure_is_reported_with_secrets_masked(tmp_path: Path) -> None:
    (edit_file, _) = masked_tools(tools(tmp_path), SecretMask(("hunter2hunter2",)))
    arguments = '{"path": "hunter2hunter2", "old_text": "a", "new_text": "b"}'
    found = await edit_file.preflight(arguments, tmp_path / "workspaces" / "x")  # type: ignore[attr-defined]
    assert found.startswith("there is no") and "hunter2" not in found
    (tool,) = masked_tools((FakeTool("lever", "unsafe"),), SecretMask(("hunter2hunter2",)))
    assert await tool.preflight("{}", tmp_path) == ""  # type: ignore[attr-defined]


def _second(step: list[StepAction]) -> list[StepAction]:
    return [msgspec.structs.replace(each, index=1) for each in step if isinstance(each, CallDelta)]


async def _pending_calls(app: AppHarness, session_id: SessionId) -> list[ToolRow]:
    """The calls of a run that waits."""
    sent = await app.send(session_id, "Go")
    assert sent.run_id is not None
    await app.wait_for_run(sent.run_id, "waiting")
    return list(await app.store.tools(session_id, sent.run_id))
